"""Weights that are mapped from a file: what has been read of them may leave memory, for it is in the file still."""

from __future__ import annotations

import ctypes
import io
import mmap
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PAGEOUT = 21  # of Linux's madvise(2). Unlike MADV_DONTNEED it keeps pages that were changed.
_MAPS = Path("/proc/self/maps")
_LARGE = 2**20

Span = tuple[int, int]  # address and bytes


def mapped_spans(tensors: Iterable[Tensor]) -> list[Span]:
    """Whole pages of those tensors that lie in a mapped file. Empty where the system does not tell."""
    if sys.platform != "linux" or not _MAPS.exists():
        return []
    files = _mapped_files()
    spans = []
    for tensor in tensors:
        start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if start < end and any(first <= start and end <= last for first, last in files):
            spans.append((start, end - start))
    return spans


def let_go(spans: Iterable[Span]) -> None:
    """Their pages leave memory until they are read again. A hint: nothing is lost, and it may do nothing."""
    madvise = ctypes.CDLL(None).madvise
    for start, length in spans:
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _PAGEOUT)


class LettingGo(io.BufferedWriter):
    """A file that lets go of mapped weights after each large piece that is written."""

    def __init__(self, file: io.RawIOBase, spans: Iterable[Span]) -> None:
        super().__init__(file)
        self._spans = list(spans)

    def write(self, data: Buffer) -> int:
        written = super().write(data)
        if written >= _LARGE:
            let_go(self._spans)
        return written


def _mapped_files() -> list[Span]:
    """First and last address of each mapping that has a file behind it."""
    found = []
    for line in _MAPS.read_text(encoding="utf-8", errors="replace").splitlines():
        place, _, _, _, inode, *_ = line.split(maxsplit=5)
        if inode != "0":
            first, last = (int(part, 16) for part in place.split("-"))
            found.append((first, last))
    return found
