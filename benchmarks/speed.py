"""The comparison itself: the same work, the same weights, everybody in turn."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.arena import Arena, Worker
from benchmarks.errors import BenchmarkError
from benchmarks.materials import Workshop
from benchmarks.plan import PAIRS, TARGETS, Row
from benchmarks.roster import BY_NAME, OURS_EXACT, Entry
from benchmarks.work import Work

CHECK_SENTENCES, CHECK_TOKENS = 3, 24
LOG_PROBABILITY_LIMIT = 1e-3  # of a sum over CHECK_TOKENS tokens


@dataclass(frozen=True)
class Timing:
    """Seconds of one contender in one row."""

    minimum: float
    median: float
    rounds: list[float]  # minimum of each turn


@dataclass(frozen=True)
class RowResult:
    row: Row
    sentences: int
    times: dict[str, Timing]

    def figure(self, name: str) -> float:
        """Milliseconds a step where the length is forced, else a sentence."""
        return 1e3 * self.times[name].minimum / (self.row.tokens or self.sentences)

    def sentences_per_second(self, name: str) -> float:
        return self.sentences / self.times[name].minimum


@dataclass(frozen=True)
class Ratio:
    """Time of the peer over ours: the median of the rounds, and how they spread."""

    row: Row
    peer: str
    ours: str
    median: float
    lowest: float
    highest: float
    must: float | None = None
    goal: float | None = None

    @property
    def verdict(self) -> str:
        if self.must is None or self.goal is None:
            return ""
        return "goal" if self.median >= self.goal else "must" if self.median >= self.must else "below"


@dataclass(frozen=True)
class Check:
    """Whether a contender gives what our float32 bundle gives."""

    model: str
    name: str
    beam: int
    same: int  # sentences with the same tokens
    of: int
    worst: float | None  # difference of the summed log-probability among the same


@dataclass(frozen=True)
class Settings:
    rounds: int = 5
    turn_seconds: float = 0.4  # a turn has at least one run, and as many as fit
    say: Callable[[str], None] = lambda message: None


def compare(
    rows: Sequence[Row], texts: Callable[[Row], Sequence[str]], workshop: Workshop, settings: Settings
) -> tuple[list[RowResult], list[Check]]:
    """All rows of one model. Contenders that cannot take part are named and left out."""
    results: list[RowResult] = []
    checks: list[Check] = []
    for threads, group in groupby(sorted(rows, key=lambda r: -r.threads), key=lambda r: r.threads):
        part = list(group)
        names = list(dict.fromkeys(name for row in part for name in row.contenders))
        with Arena(_workers(names, workshop, threads, settings)) as arena:
            if not checks:
                checks = _check(part[0], arena, texts(replace(part[0], batch=CHECK_SENTENCES))[:CHECK_SENTENCES])
            for row in part:
                work = Work(tuple(texts(row)), row.beam, row.tokens, row.batch)
                results.append(_measure(arena, row, work, settings))
    return results, checks


def ratios(results: Iterable[RowResult]) -> list[Ratio]:
    """Of all pairs that a row has, with the targets of the untrained model's rows."""
    wanted = {(t.peer, t.ours, t.threads, t.label): (t.must, t.goal) for t in TARGETS}
    found = []
    for result in results:
        for peer, ours in PAIRS:
            if peer in result.times and ours in result.times:
                key = (peer, ours, result.row.threads, result.row.label)
                must, goal = wanted.get(key, (None, None)) if result.row.model == "base" else (None, None)
                found.append(_ratio(result, peer, ours, must, goal))
    return found


def _ratio(result: RowResult, peer: str, ours: str, must: float | None, goal: float | None) -> Ratio:
    pairs = zip(result.times[peer].rounds, result.times[ours].rounds, strict=True)
    each = [theirs / own for theirs, own in pairs]
    return Ratio(result.row, peer, ours, statistics.median(each), min(each), max(each), must, goal)


def _workers(names: Sequence[str], workshop: Workshop, threads: int, settings: Settings) -> list[Worker]:
    workers = []
    for name in names:
        try:
            workers.append(open_worker(BY_NAME[name], workshop, threads))
        except BenchmarkError as error:
            settings.say(f"{name} is left out: {error}")
    if not workers:
        raise BenchmarkError("nobody is left to compare")
    return workers


def open_worker(entry: Entry, workshop: Workshop, threads: int) -> Worker:
    """Raises BenchmarkError when it cannot be made or loaded."""
    if entry.is_peer and not workshop.peers.exists():
        raise BenchmarkError("the peers are not installed; run: make bench-peers")
    python = workshop.peers if entry.is_peer else Path(sys.executable)
    return Worker(entry, python, workshop.material(entry.material), threads)


def _check(row: Row, arena: Arena, texts: Sequence[str]) -> list[Check]:
    """Same weights, same function: exact contenders must give our tokens, or nothing is timed.

    At natural lengths only greedily: beam searches may end at different times.
    """
    if OURS_EXACT not in arena.workers:
        return []
    checks = []
    for beam in (1, 4):
        work = Work(tuple(texts), beam, row.tokens and CHECK_TOKENS, len(texts), exact=True)
        ours = arena.workers[OURS_EXACT].ask({"do": "run", "work": asdict(work)})
        for name, worker in arena.workers.items():
            if name == OURS_EXACT:
                continue
            with suppress(_CannotSearchError):
                checks.append(_checked(row.model, name, beam, ours, _run(worker, work)))
    must_agree = [c for c in checks if BY_NAME[c.name].is_exact and (c.beam == 1 or row.tokens)]
    wrong = [c for c in must_agree if not _is_fine(c)]
    if wrong:
        worst = wrong[0]
        raise BenchmarkError(
            f"{worst.name}, beam {worst.beam}: {worst.same} of {worst.of} sentences have our tokens, scores differ by "
            f"{worst.worst}; these are not the same weights"
        )
    return checks


class _CannotSearchError(BenchmarkError):
    """A contender that is greedy only."""


def _run(worker: Worker, work: Work) -> dict[str, Any]:
    if worker.entry.module == "recompute_loop" and work.beam_size > 1:
        raise _CannotSearchError(worker.entry.name)
    return worker.ask({"do": "run", "work": asdict(work)})


def _checked(model: str, name: str, beam: int, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Check:
    same = [a == b for a, b in zip(ours["ids"], theirs["ids"], strict=True)]
    sums = zip(ours["log_probabilities"], theirs["log_probabilities"], same, strict=True)
    differences = [abs(a - b) for a, b, is_same in sums if is_same and b is not None]
    return Check(model, name, beam, sum(same), len(same), max(differences, default=None))


def _is_fine(check: Check) -> bool:
    return check.same == check.of and (check.worst is None or check.worst <= LOG_PROBABILITY_LIMIT)


def _measure(arena: Arena, row: Row, work: Work, settings: Settings) -> RowResult:
    names = [name for name in row.contenders if name in arena.workers]
    order = {"do": "time", "work": asdict(work), "seconds": settings.turn_seconds}
    answers = arena.take_turns(names, order, settings.rounds)
    times = {}
    for name, turns in answers.items():
        each = [turn["seconds"] for turn in turns]
        times[name] = Timing(
            min(map(min, each)), statistics.median(s for turn in each for s in turn), [min(turn) for turn in each]
        )
    result = RowResult(row, len(work.texts), times)
    figures = "  ".join(f"{name} {result.figure(name):.2f}" for name in names)
    settings.say(f"{row.model}, {row.threads} threads, {row.label}: ms {figures}")
    return result
