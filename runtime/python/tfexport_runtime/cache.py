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
        if _in_order(sentences, len(self.mask)):
            return self
        return Memory([_moved(a, sentences) for a in self.cross], _moved(self.mask, sentences))


@dataclass
class InPlaceCache:
    """Buffers of a capacity, written by the graph where each row ends; what lies behind a row's length is garbage.

    A row need not lie at its own index: when beams change places, only a beam that has two heirs is copied, into the
    place of one that has none. Both descend from one beam of some steps ago: what that had is not copied again.
    """

    memory: Memory
    buffers: Array  # [2L, R or more, H, C, D]; keys and values by turns
    lengths: npt.NDArray[np.int32]  # [R] used length, by place
    places: IntArray  # [R] where each row lies in the buffers: among the K places of its sentence
    common: npt.NDArray[np.int32]  # [R, K] first tokens that a place shares with each other of its sentence
    binding: Any = field(default=None, repr=False)  # what the session keeps while these arrays stay where they are

    @classmethod
    def empty(cls, memory: Memory, rows: int, layers: int, heads: int, head_size: int, capacity: int) -> InPlaceCache:
        dtype = memory.cross[0].dtype
        buffers = np.zeros((2 * layers, rows, heads, capacity, head_size), dtype)
        common = np.zeros((rows, rows // max(1, len(memory.mask))), np.int32)
        return cls(memory, buffers, np.zeros(rows, np.int32), np.arange(rows), common)

    @property
    def capacity(self) -> int:
        return int(self.buffers.shape[3])

    def layer(self, index: int) -> Array:
        """Keys or values of the live rows by place, [R, H, C, D], in one piece of memory."""
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
        return InPlaceCache(self.memory, grown, self.lengths, self.places, self.common)

    def select(self, rows: IntArray) -> InPlaceCache:
        """Copies as few rows as it can, and of them only what is used."""
        before = len(self.lengths)
        if _in_order(rows, before):
            return self
        beams = before // len(self.memory.mask)
        sources = self.places[rows]
        places, copied = _fewest_copies(sources, beams)
        common = self._common_of_heirs(sources, places)
        if len(copied):
            self._copy(sources[copied], places[copied])
        self.common, self.places = common, places
        memory = self.memory.select(rows[::beams] // beams)
        if memory is self.memory and len(rows) == before:
            return self
        return InPlaceCache(memory, self.buffers, self.lengths[: len(rows)], places, common)

    def _copy(self, sources: IntArray, targets: IntArray) -> None:
        beams = self.common.shape[1]
        lengths = self.lengths[sources]
        if np.isin(sources, targets).any():
            used = int(lengths.max())
            self.buffers[:, targets, :, :used] = self.buffers[:, sources, :, :used]
        else:  # row by row, without a copy between
            relatives = sources // beams == targets // beams
            begins = np.where(relatives, self.common[sources, targets % beams], 0)
            for source, target, begin, end in zip(*(a.tolist() for a in (sources, targets, begins, lengths)), strict=True):
                self.buffers[:, target, :, begin:end] = self.buffers[:, source, :, begin:end]
        self.lengths[targets] = lengths

    def _common_of_heirs(self, sources: IntArray, places: IntArray) -> npt.NDArray[np.int32]:
        """sources, places [R']: which place each new row continues, and where it lies. Returns the new `common`.

        Two heirs of one place share all of it, others what those share that they continue.
        """
        beams = self.common.shape[1]
        one, other = sources.reshape(-1, beams, 1), sources.reshape(-1, 1, beams)
        shared = np.where(one == other, self.lengths[one], self.common[one, other % beams])
        heirs = np.empty((len(places), beams), np.int32)
        heirs[places.reshape(-1, beams, 1), places.reshape(-1, 1, beams) % beams] = shared
        return heirs


def _fewest_copies(sources: IntArray, beams: int) -> tuple[IntArray, IntArray]:
    """sources [R']: the place that each new row continues. Returns the places of the new rows, and who must be copied.

    A row stays where it is if that is among the places of its sentence and no earlier row has it.
    """
    count = len(sources)
    stays = np.zeros(count, bool)
    stays[np.unique(sources, return_index=True)[1]] = True
    stays &= sources // beams == np.arange(count) // beams
    free = np.ones(count, bool)
    free[sources[stays]] = False
    places = sources.copy()
    places[~stays] = np.flatnonzero(free)  # both in order of sentences, as many in each
    return places, np.flatnonzero(~stays)


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
        if _in_order(rows, len(self.lengths)):
            return self
        beams = len(self.lengths) // len(self.memory.mask)
        memory = self.memory.select(rows[::beams] // beams)
        return GrowingCache(memory, [np.ascontiguousarray(a[rows]) for a in self.layers], self.lengths[rows])


def _in_order(indices: IntArray, count: int) -> bool:
    """Whether they are 0, 1, ... count - 1, so that nothing moves."""
    return len(indices) == count and bool((indices == np.arange(count)).all())


def _moved(array: Array, order: IntArray) -> Array:
    """array[order], written into the front of the same memory; order[i] == i stays untouched."""
    moved = np.flatnonzero(order != np.arange(len(order)))
    array[moved] = array[order[moved]]
    return array[: len(order)]
