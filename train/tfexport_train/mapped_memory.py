"""Weights that are mapped from a file: what has been read of them may leave memory, for it is in the file still.

Weights that were computed can lie in a file of their own for that.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import math
import mmap
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
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


def in_file(*tensors: Tensor) -> Tensor:
    """All their rows in float32, mapped from a temporary file that vanishes with the result; small ones stay in memory.

    The file is written piece by piece: neither the result nor a mapped source need be in memory as a whole.
    """
    shape = (sum(len(tensor) for tensor in tensors), *tensors[0].shape[1:])
    if sys.platform == "linux" and math.prod(shape) * 4 >= _LARGE:
        with contextlib.suppress(OSError, RuntimeError), tempfile.NamedTemporaryFile(prefix="tfexport-") as file:
            for tensor in tensors:
                for rows in torch.split(tensor, max(1, _LARGE // (tensor.nbytes // len(tensor)))):
                    file.write(rows.float().contiguous().numpy().data)
                let_go(mapped_spans([tensor]))
            file.flush()
            return torch.from_file(file.name, shared=False, size=math.prod(shape), dtype=torch.float32).view(shape)
    # Also where a file of that size cannot be written.
    return torch.cat([tensor.float() for tensor in tensors]).contiguous()


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
