"""A step model made of a table: the logits are a seeded function of the source and of all tokens so far.

Its cache carries the history of every row, so that a beam that is moved to the wrong place gets other logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tfexport_runtime.step_model import Candidates, FloatArray, IntArray

Ids = tuple[int, ...]
Kind = Literal["smooth", "ties", "holes"]
LEVELS = np.array([0.0, -1.0, -1.0, -2.75], np.float32)


@dataclass
class Table:
    """logits(source, history) -> float32 [V]. smooth: normal; ties: few levels; holes: many tokens at -inf."""

    seed: int
    vocab_size: int
    kind: Kind = "smooth"
    raised: dict[int, float] = field(default_factory=dict)  # added to the logits of these ids
    always: tuple[int, ...] = ()  # ids that never are -inf
    known: dict[tuple[Ids, Ids], FloatArray] = field(default_factory=dict, repr=False)

    def __call__(self, source: Ids, history: Ids) -> FloatArray:
        key = (source, history)
        if key not in self.known:
            self.known[key] = self._logits(source, history)
        return self.known[key]

    def _logits(self, source: Ids, history: Ids) -> FloatArray:
        generator = np.random.default_rng([self.seed, len(source), *source, *history])
        if self.kind == "ties":
            logits = LEVELS[generator.integers(0, len(LEVELS), self.vocab_size)]
        else:
            logits = (2 * generator.standard_normal(self.vocab_size)).astype(np.float32)
        if self.kind == "holes":
            holes = generator.random(self.vocab_size) < 0.5
            holes[list(self.always)] = False
            logits[holes] = -np.inf
        for token, amount in self.raised.items():
            logits[token] += np.float32(amount)
        return logits


@dataclass
class HistoryCache:
    """What each row has read, the start token included. Only the newest value may be used."""

    sources: list[Ids]
    rows: list[Ids]
    stale: bool = False

    def used(self) -> HistoryCache:
        assert not self.stale, "an old cache was used"
        self.stale = True
        return self

    def select(self, rows: IntArray) -> HistoryCache:
        self.used()
        beams = len(self.rows) // len(self.sources)
        owners = (rows // beams).reshape(-1, beams)
        assert (owners == owners[:, :1]).all(), "rows of one sentence were parted"
        return HistoryCache([self.sources[i] for i in owners[:, 0]], [self.rows[r] for r in rows])


@dataclass(frozen=True)
class TableModel:
    """The StepModel over a function of source and history (without the start token)."""

    logits: Callable[[Ids, Ids], FloatArray]
    vocab_size: int
    start_id: int

    def start(self, sources: Sequence[Sequence[int]], beam_size: int) -> HistoryCache:
        assert all(len(s) > 0 for s in sources)
        return HistoryCache([tuple(s) for s in sources], [()] * (len(sources) * beam_size))

    def step(
        self, tokens: IntArray, cache: HistoryCache, bias: FloatArray, count: int
    ) -> tuple[Candidates, HistoryCache]:
        assert bias.shape == (self.vocab_size,)
        assert bias.dtype == np.float32
        assert 1 <= count <= self.vocab_size
        logits, cache = self.step_logits(tokens, cache)
        log_probs = np.stack([single_precision_log_softmax(row + bias) for row in logits])
        ids = np.argsort(-log_probs, axis=1, kind="stable")[:, :count]
        return Candidates(np.take_along_axis(log_probs, ids, axis=1), ids), cache

    def step_logits(self, tokens: IntArray, cache: HistoryCache) -> tuple[FloatArray, HistoryCache]:
        cache.used()
        assert tokens.shape == (len(cache.rows),)
        rows = [(*row, int(token)) for row, token in zip(cache.rows, tokens, strict=True)]
        assert all(row[0] == self.start_id for row in rows)
        beams = len(rows) // len(cache.sources)
        logits = np.stack([self.logits(cache.sources[i // beams], row[1:]) for i, row in enumerate(rows)])
        return logits, HistoryCache(cache.sources, rows)


def single_precision_log_softmax(z: FloatArray) -> FloatArray:
    """All in float32, as an engine computes it. With it in the reference too, ties are the same ties."""
    shifted = z - z.max()
    result: FloatArray = shifted - np.log(np.exp(shifted).sum(dtype=np.float32))
    return result
