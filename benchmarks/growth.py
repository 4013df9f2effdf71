"""What a step costs when much is cached, against one when little is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.materials import Workshop
from benchmarks.roster import BY_NAME
from benchmarks.speed import open_worker

EARLY = slice(12, 20)  # around 16 cached tokens
LATE = slice(-8, None)


@dataclass(frozen=True)
class Growth:
    """Milliseconds of a greedy step at batch 1: the median of the eight around each place."""

    name: str
    cached: int  # tokens at the late place
    early: float  # with 16 cached tokens
    late: float

    @property
    def ratio(self) -> float:
        return self.late / self.early


def measure_growth(
    names: Sequence[str], workshop: Workshop, text: str, tokens: int, rounds: int, threads: int
) -> list[Growth]:
    found = []
    for name in names:
        worker = open_worker(BY_NAME[name], workshop, threads)
        try:
            order = {"do": "steps", "text": text, "tokens": tokens}
            runs = [worker.ask(order)["seconds"] for _ in range(rounds + 1)][1:]
        finally:
            worker.close()
        least = [1e3 * min(step) for step in zip(*runs, strict=True)]
        found.append(Growth(name, len(least), statistics.median(least[EARLY]), statistics.median(least[LATE])))
    return found
