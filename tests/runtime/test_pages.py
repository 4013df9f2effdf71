"""What is told to the system of a model's memory."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfexport_runtime.pages import LARGE, _use_large_pages, drop_pages_of, private_memory, whole_pages

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="hints that only Linux follows")

QUARTER = LARGE // 4


@st.composite
def _ranges(draw: st.DrawFn) -> list[range]:
    """In order, apart from one another, with ends between and on the borders of large pages."""
    ends = sorted(draw(st.sets(st.integers(0, 60), max_size=12)))
    return [range(a * QUARTER, b * QUARTER) for a, b in zip(ends[::2], ends[1::2], strict=False)]


@given(_ranges(), _ranges())
def test_whole_pages_are_those_of_which_every_part_is_new(now: list[range], before: list[range]) -> None:
    def is_in(place: int, memory: list[range]) -> bool:
        return any(place in part for part in memory)

    found = whole_pages(now, before)
    for page in range(0, 60 * QUARTER, LARGE):
        quarters = [page + i * QUARTER for i in range(4)]
        is_new = all(is_in(place, now) and not is_in(place, before) for place in quarters)
        # Neighbours that touch are one piece for the system already, so a page of two pieces may be left out.
        is_one_piece = any(page >= part.start and page + LARGE <= part.stop for part in now)
        assert is_in(page, found) == (is_new and is_one_piece)


@linux_only
def test_memory_of_this_process_is_listed_in_order() -> None:
    block = mmap.mmap(-1, 3 * LARGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    listed = private_memory()
    assert listed == sorted(listed, key=lambda part: part.start)
    assert sum(map(len, listed)) > len(block)
    block.close()


@linux_only
def test_new_memory_gets_large_pages_and_keeps_its_content() -> None:
    if "[never]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="ascii"):
        pytest.skip("this system gives no large pages")
    before = private_memory()
    block = mmap.mmap(-1, 4 * LARGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    content = bytes(range(256)) * (len(block) // 256)
    block[:] = content
    large = _in_large_pages()
    _use_large_pages(before)
    if _in_large_pages() == large:
        pytest.skip("this system has no large page left, or is older than Linux 6.1")
    assert block[:] == content
    block.close()


@linux_only
def test_dropped_pages_of_a_file_come_back_with_their_content(tmp_path: Path) -> None:
    path = tmp_path / "weights with a space.bin"
    content = bytes(range(256)) * 8192
    path.write_bytes(content)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as block:
        assert block[:] == content
        assert _resident(path) == len(content)
        drop_pages_of([tmp_path / "another", path])
        assert _resident(path) == 0
        assert block[:] == content


@linux_only
def test_what_was_written_over_a_mapped_file_is_never_dropped(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"a" * 65536)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as block:
        block[5] = ord("b")
        drop_pages_of([path])
        assert block[:8] == b"aaaaabaa"


def _in_large_pages() -> int:
    lines = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))


def _resident(file: Path) -> int:
    """Bytes of a mapped file that are in this process's memory."""
    lines = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines()
    at = next(i for i, line in enumerate(lines) if line.endswith(str(file)))
    return next(int(line.split()[1]) * 1024 for line in lines[at:] if line.startswith("Rss:"))
