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

FIRST_CAPACITY = 32  # tokens that a new in-place cache holds before it is doubled


@dataclass
class Memory:
    """What the encoder left for the decoder, once per sentence."""

    cross: list[Array]  # keys and values by turns, each [B, H, S, D]; 2L of them
    mask: npt.NDArray[np.int32]  # [B, S], 1 on real tokens

    def select(self, sentences: IntArray) -> Memory:
        """Only these sentences, in this order. The arrays are moved within, and cut."""
        if in_order(sentences, len(self.mask)):
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
    common: list[list[int]]  # [R][K] how many first tokens a place shares with each other one of its sentence
    binding: Any = field(default=None, repr=False)  # what the session keeps while these arrays stay where they are

    @classmethod
    def empty(cls, memory: Memory, rows: int, layers: int, heads: int, head_size: int, capacity: int) -> InPlaceCache:
        dtype = memory.cross[0].dtype
        buffers = np.zeros((2 * layers, rows, heads, capacity, head_size), dtype)
        common = [[0] * (rows // len(memory.mask)) for _ in range(rows)]
        return cls(memory, buffers, np.zeros(rows, np.int32), np.arange(rows), common)

    @property
    def capacity(self) -> int:
        return int(self.buffers.shape[3])

    @property
    def beams(self) -> int:
        return len(self.common[0])

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
        if in_order(rows, before):
            return self
        sources = self.places[rows].tolist()
        places, copied = _fewest_copies(sources, self.beams)
        common = self._common_of_heirs(sources, places, copied)
        self._copy([sources[row] for row in copied], [places[row] for row in copied])
        self.common, self.places = common, np.array(places)
        memory = self.memory.select(rows[:: self.beams] // self.beams)
        if memory is self.memory and len(rows) == before:
            return self
        return InPlaceCache(memory, self.buffers, self.lengths[: len(rows)], self.places, common)

    def _copy(self, sources: list[int], targets: list[int]) -> None:
        if not set(sources).isdisjoint(targets):  # through a copy between
            self.buffers[:, targets], self.lengths[targets] = self.buffers[:, sources], self.lengths[sources]
            return
        for source, target in zip(sources, targets, strict=True):
            begin, end = self._common_of(source, target), self.lengths[source]
            self.buffers[:, target, :, begin:end] = self.buffers[:, source, :, begin:end]
            self.lengths[target] = end

    def _common_of(self, place: int, other: int) -> int:
        """How many first tokens they share."""
        beams = self.beams
        return self.common[place][other % beams] if place // beams == other // beams else 0

    def _common_of_heirs(self, sources: list[int], places: list[int], copied: list[int]) -> list[list[int]]:
        """sources, places [R']: which place each new row continues, and where it lies. Returns the new `common`.

        Two heirs of one place share all of it, others what those share that they continue.
        """
        common, beams = self.common[: len(places)], self.beams
        for first in {row - row % beams for row in copied}:
            family = range(first, first + beams)  # all of them continue places of one sentence
            for row in family:
                source, shared = sources[row], [0] * beams
                before, used = self.common[source], int(self.lengths[source])
                for other in family:
                    continued = sources[other]
                    shared[places[other] % beams] = used if continued == source else before[continued % beams]
                common[places[row]] = shared
        return common


def _fewest_copies(sources: list[int], beams: int) -> tuple[list[int], list[int]]:
    """sources [R']: the place that each new row continues. Returns the places of the new rows, and who must be copied.

    A row stays where it is if that is among the places of its sentence and no earlier row has it.
    """
    taken, copied, places = set(), [], list(sources)
    for row, place in enumerate(sources):
        if place // beams == row // beams and place not in taken:
            taken.add(place)
        else:
            copied.append(row)
    free = (place for place in range(len(sources)) if place not in taken)  # in order of sentences, as `copied`
    for row in copied:
        places[row] = next(free)
    return places, copied


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
        if in_order(rows, len(self.lengths)):
            return self
        beams = len(self.lengths) // len(self.memory.mask)
        memory = self.memory.select(rows[::beams] // beams)
        return GrowingCache(memory, [np.ascontiguousarray(a[rows]) for a in self.layers], self.lengths[rows])


def in_order(indices: IntArray, count: int) -> bool:
    """Whether they are 0, 1, ... count - 1, so that nothing moves."""
    return len(indices) == count and bool((indices == np.arange(count)).all())


def _moved(array: Array, order: IntArray) -> Array:
    """array[order], written into the front of the same memory; order[i] == i stays untouched."""
    moved = np.flatnonzero(order != np.arange(len(order)))
    array[moved] = array[order[moved]]
    return array[: len(order)]
