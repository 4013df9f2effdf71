"""The decoder's memory of every row, in its two forms. See SPEC.md, "Cache".

Letters: B sentences, K beams, R = B*K rows, S source length, P used length, C capacity, H heads, D head size, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tfexport_runtime.step_model import IntArray

Array = npt.NDArray[Any]


@dataclass
class Memory:
    """What the encoder left for the decoder, once per sentence."""

    cross: list[Array]  # keys and values by turns, each [B, H, S, D]; 2L of them
    mask: npt.NDArray[np.int32]  # [B, S], 1 on real tokens

    def select(self, sentences: IntArray) -> Memory:
        """Only these sentences, in this order. The arrays are moved within, and cut."""
        if np.array_equal(sentences, np.arange(len(self.mask))):
            return self
        return Memory([_moved(a, sentences) for a in self.cross], _moved(self.mask, sentences))


@dataclass
class InPlaceCache:
    """Buffers of a capacity, written by the graph where each row ends; what lies behind a row's length is garbage."""

    memory: Memory
    buffers: Array  # [2L, R or more, H, C, D]; keys and values by turns
    lengths: npt.NDArray[np.int32]  # [R] used length of each row
    binding: Any = field(default=None, repr=False)  # what the session keeps while these arrays stay where they are

    @classmethod
    def empty(cls, memory: Memory, rows: int, layers: int, heads: int, head_size: int, capacity: int) -> InPlaceCache:
        dtype = memory.cross[0].dtype
        buffers = np.zeros((2 * layers, rows, heads, capacity, head_size), dtype)
        return cls(memory, buffers, np.zeros(rows, np.int32))

    @property
    def capacity(self) -> int:
        return int(self.buffers.shape[3])

    def layer(self, index: int) -> Array:
        """Keys or values of the live rows, [R, H, C, D], in one piece of memory."""
        view: Array = self.buffers[index, : len(self.lengths)]
        return view

    def with_room(self, limit: int) -> InPlaceCache:
        """This cache if one more token fits, else one of twice the capacity, at most `limit`."""
        used = int(self.lengths.max())
        if used < self.capacity:
            return self
        shape = list(self.buffers.shape)
        shape[1], shape[3] = len(self.lengths), min(2 * self.capacity, limit)
        grown = np.zeros(shape, self.buffers.dtype)
        grown[:, :, :, :used] = self.buffers[:, : len(self.lengths), :, :used]
        return InPlaceCache(self.memory, grown, self.lengths)

    def select(self, rows: IntArray) -> InPlaceCache:
        """Moves only the rows that change, and of them only what is used."""
        before = len(self.lengths)
        moved = np.flatnonzero(rows != np.arange(len(rows)))
        if not len(moved) and len(rows) == before:
            return self
        if len(moved):
            used = int(self.lengths[rows[moved]].max())
            self.buffers[:, moved, :, :used] = self.buffers[:, rows[moved], :, :used]
        beams = before // len(self.memory.mask)
        memory = self.memory.select(rows[::beams] // beams)
        if memory is self.memory and len(rows) == before:
            self.lengths[:] = self.lengths[rows]
            return self
        return InPlaceCache(memory, self.buffers, self.lengths[rows])


@dataclass
class GrowingCache:
    """What graphs of standard operators use: each step returns arrays that are one token longer."""

    memory: Memory
    layers: list[Array]  # keys and values by turns, each [R, H, P, D]; 2L of them
    lengths: npt.NDArray[np.int32]  # [R], all equal

    @classmethod
    def empty(cls, memory: Memory, rows: int, layers: int, heads: int, head_size: int) -> GrowingCache:
        nothing = np.zeros((rows, heads, 0, head_size), memory.cross[0].dtype)
        return cls(memory, [nothing] * (2 * layers), np.zeros(rows, np.int32))

    def select(self, rows: IntArray) -> GrowingCache:
        if np.array_equal(rows, np.arange(len(self.lengths))):
            return self
        beams = len(self.lengths) // len(self.memory.mask)
        memory = self.memory.select(rows[::beams] // beams)
        return GrowingCache(memory, [np.ascontiguousarray(a[rows]) for a in self.layers], self.lengths[rows])


def _moved(array: Array, order: IntArray) -> Array:
    """array[order], written into the front of the same memory; order[i] == i stays untouched."""
    moved = np.flatnonzero(order != np.arange(len(order)))
    array[moved] = array[order[moved]]
    return array[: len(order)]
