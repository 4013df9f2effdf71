"""What a cache must hold, by plain indexing: the model of expectation of all its forms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tfexport_runtime.cache import Array, Memory

LAYERS, HEADS, SIZE, SOURCE, LIMIT = 2, 2, 3, 4, 13
STEPS = st.lists(st.sampled_from(["step", "step", "reorder", "leave", "permute"]), max_size=25)


@dataclass
class Expected:
    """One list entry for each row or sentence; moving them is plain indexing."""

    beams: int
    cross: list[list[Array]]  # [sentence][2L] of [H, S, D]
    masks: list[Array]
    rows: list[list[Array]]  # [row][token] of [2L, H, D]

    def select(self, rows: list[int]) -> None:
        sentences = [r // self.beams for r in rows[:: self.beams]]
        self.cross = [self.cross[i] for i in sentences]
        self.masks = [self.masks[i] for i in sentences]
        self.rows = [list(self.rows[r]) for r in rows]


def new_memory(generator: np.random.Generator, sentences: int) -> Memory:
    cross = [generator.random((sentences, HEADS, SOURCE, SIZE), np.float32) for _ in range(2 * LAYERS)]
    return Memory(cross, generator.integers(0, 2, (sentences, SOURCE)).astype(np.int32))


def start(memory: Memory, beams: int) -> Expected:
    count = len(memory.mask)
    cross = [[a[i].copy() for a in memory.cross] for i in range(count)]
    return Expected(beams, cross, [m.copy() for m in memory.mask], [[] for _ in range(count * beams)])


def next_rows(action: str, generator: np.random.Generator, expected: Expected) -> list[int]:
    """reorder: beams within their sentences; leave: fewer sentences, the last ones fill gaps; permute: any order."""
    beams, count = expected.beams, len(expected.masks)
    sentences = list(range(count))
    if action == "leave":
        stay = [i for i in sentences if generator.random() < 0.6] or [0]
        last_first = iter(reversed(stay))
        sentences = [i if i in stay else next(last_first) for i in range(len(stay))]
    if action == "permute":
        sentences = generator.permutation(count).tolist()
    return [s * beams + int(generator.integers(0, beams)) for s in sentences for _ in range(beams)]


def assert_memory(memory: Memory, expected: Expected) -> None:
    assert np.array_equal(memory.mask, np.array(expected.masks))
    for i, array in enumerate(memory.cross):
        assert array.flags.c_contiguous
        assert np.array_equal(array, np.array([c[i] for c in expected.cross]))
