"""What Linux is told of the memory of a model: which of it is not needed, and which is large."""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LARGE = 2 << 20  # bytes of a large page where a small one has 4 KiB
AFTER = 1.0  # seconds; moving 100 MB takes 50 ms, which a process that lives shorter had better not spend

_MADV_DONTNEED, _MADV_HUGEPAGE, _MADV_COLLAPSE = 4, 14, 25  # linux/mman.h; the last from Linux 6.1 on


@dataclass
class Mapping:
    """A line "7f12a0000000-7f12a0021000 rw-p 00000000 00:00 0 [heap]" of /proc/self/maps."""

    addresses: range
    access: str
    name: str  # a path, a word in brackets, or nothing
    written: int = 0  # KiB that this process has written, as smaps says; of a file, what is in memory only


def drop_pages_of(files: Collection[Path]) -> None:
    """What is mapped of files takes no memory until it is read again: an engine has copied most of it."""
    names = {str(file.resolve()) for file in files}
    for mapping in _mappings("smaps"):
        if mapping.name in names and not mapping.written:
            _advise(mapping.addresses, _MADV_DONTNEED)


def private_memory() -> list[range]:
    """Where this process has memory of its own, lowest address first."""
    mappings = _mappings("maps")  # smaps would count the pages of all memory of the process
    return [mapping.addresses for mapping in mappings if mapping.access == "rw-p" and mapping.name in ("", "[heap]")]


def use_large_pages_soon(before: Sequence[range]) -> None:
    """Moves what is allocated since `before` = private_memory() into large pages, in the background.

    A step reads every weight once, and with small pages it waits for their addresses: 5 to 15 % of its time.
    """
    if sys.platform == "linux":
        timer = threading.Timer(AFTER, _use_large_pages, [before])
        timer.daemon = True  # the end of the process does not wait for it
        timer.start()


def whole_pages(now: Sequence[range], before: Sequence[range]) -> list[range]:
    """What of `now` is not in `before`, as far as it fills large pages. Both are in order and do not overlap."""
    parts = []
    for memory in now:
        start = memory.start
        for old in before:
            if start < old.stop and old.start < memory.stop:
                parts.append(range(start, old.start))
                start = old.stop
        parts.append(range(start, memory.stop))
    rounded = [range(-(-part.start // LARGE) * LARGE, part.stop // LARGE * LARGE) for part in parts]
    return [part for part in rounded if part]


def _use_large_pages(before: Sequence[range]) -> None:
    for part in whole_pages(private_memory(), before):
        _advise(part, _MADV_HUGEPAGE)
        _advise(part, _MADV_COLLAPSE)


def _mappings(listing: Literal["maps", "smaps"]) -> list[Mapping]:
    """None where it is not Linux, or nothing of it is shown."""
    found: list[Mapping] = []
    try:
        lines = Path("/proc/self", listing).read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except OSError:
        return found
    for line in filter(None, lines):
        word, *values = line.split(maxsplit=5)
        if not word.endswith(":"):
            start, end = (int(address, 16) for address in word.split("-"))
            found.append(Mapping(range(start, end), values[0], values[4] if len(values) > 4 else ""))
        elif word == "Anonymous:":
            found[-1].written = int(values[0])
    return found


def _advise(memory: range, advice: int) -> None:
    """What the system does not know, or memory that was freed in the meantime, changes nothing."""
    import ctypes

    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    madvise(memory.start, len(memory), advice)
