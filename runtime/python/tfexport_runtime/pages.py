"""What Linux is told of the memory of a model: which of it is not needed, and which is large."""

from __future__ import annotations

import mmap
import sys
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LARGE = 2 << 20  # bytes of a large page where a small one has 4 KiB
AFTER = 1.0  # seconds; moving 100 MB takes 50 ms, which a process that lives shorter had better not spend

_MADV_DONTNEED, _MADV_HUGEPAGE, _MADV_COLLAPSE = 4, 14, 25  # linux/mman.h; the last from Linux 6.1 on
_IN_MEMORY, _OF_FILE = np.uint64(3 << 62), np.uint64(1 << 61)  # of /proc/self/pagemap; the first also: moved to disk


@dataclass(frozen=True)
class Mapping:
    """A line "7f12a0000000-7f12a0021000 rw-p 00000000 00:00 0 [heap]" of /proc/self/maps."""

    addresses: range
    access: str
    name: str  # a path, a word in brackets, or nothing


def drop_pages_of(files: Collection[Path]) -> None:
    """What is mapped of files takes no memory until it is read again: an engine has copied most of it."""
    names = {str(file.resolve()) for file in files}
    for mapping in _mappings():
        if mapping.name in names and _is_as_in_file(mapping.addresses):
            _advise(mapping.addresses, _MADV_DONTNEED)


def private_memory() -> list[range]:
    """Where this process has memory of its own, lowest address first."""
    return [mapping.addresses for mapping in _mappings() if mapping.access == "rw-p" and mapping.name in ("", "[heap]")]


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


def _mappings() -> list[Mapping]:
    """None where it is not Linux. /proc/self/smaps would say more, and count all pages for it: milliseconds."""
    found = []
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except OSError:
        return []
    for line in filter(None, lines):
        addresses, access, _, _, _, *name = line.split(maxsplit=5)
        start, end = (int(address, 16) for address in addresses.split("-"))
        found.append(Mapping(range(start, end), access, name[0] if name else ""))
    return found


def _is_as_in_file(memory: range) -> bool:
    """Whether this process has written to none of these pages of a file: what is written would be lost with them."""
    count = len(memory) // mmap.PAGESIZE
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as file:  # 64 bits for each page
            file.seek(memory.start // mmap.PAGESIZE * 8)
            states = np.frombuffer(file.read(count * 8), np.uint64)
    except OSError:
        return False
    written = (states & _IN_MEMORY != 0) & (states & _OF_FILE == 0)
    return len(states) == count and not written.any()


def _advise(memory: range, advice: int) -> None:
    """What the system does not know, or memory that was freed in the meantime, changes nothing."""
    import ctypes

    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    madvise(memory.start, len(memory), advice)
