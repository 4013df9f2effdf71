"""Search problems for property tests, and the comparison of the runtime with the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.search import reference
from tests.search.table_model import Ids, Table, TableModel, single_precision_log_softmax
from tfexport_runtime.hypothesis import Decoded
from tfexport_runtime.options import Progress, TranslationOptions, check_options
from tfexport_runtime.search import search
from tfexport_runtime.step_model import Request, Target

PENALTIES = ("none", "average", "gnmt", "word_reward")


def examples(count: int) -> settings:
    """The same examples in every run, whatever the machine."""
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=quiet)


@dataclass(frozen=True)
class Case:
    """A batch to decode."""

    table: Table
    target: Target
    options: TranslationOptions
    sources: tuple[Ids, ...]
    prefixes: tuple[Ids, ...]
    cancels: tuple[tuple[int, int], ...] = ()  # (sentence, step) at which the callback says stop

    def with_options(self, **changes: Any) -> Case:
        return replace(self, options=replace(self.options, **changes))

    def requests(self) -> list[Request]:
        samples = range(self.options.n_best if self.options.sampling else 1)
        sentences = enumerate(zip(self.sources, self.prefixes, strict=True))
        return [Request(source, prefix, i, sample) for i, (source, prefix) in sentences for sample in samples]

    def problem(self, request: Request) -> reference.Problem:
        return reference.Problem(
            lambda history: self.table(request.source, history),
            self.target.eos_id,
            self.target.never_generated,
            self.target.max_length,
            request.source,
            request.prefix,
            self.target.prefix_ids,
            single_precision_log_softmax,
        )


def decode(case: Case, requests: Sequence[Request] | None = None) -> list[list[Decoded]]:
    """What the runtime makes of it, all requests in one batch."""
    model = TableModel(case.table, case.target.vocab_size, case.target.start_id)
    return search(model, case.requests() if requests is None else requests, case.options, case.target)


Seen = list[tuple[int, Ids, float]]  # step, ids and sum of each call of the callback


def decode_watched(case: Case) -> tuple[list[list[Decoded]], list[Seen]]:
    """As `decode`, with the calls of the callback by request."""
    requests = case.requests()
    seen: dict[tuple[int, int], Seen] = {(r.index, r.sample): [] for r in requests}

    def callback(progress: Progress) -> bool:
        calls = seen[progress.sentence, progress.sample]
        calls.append((len(calls), progress.tokens, progress.score))
        return (progress.sentence, len(calls) - 1) in case.cancels

    return decode(case.with_options(callback=callback)), list(seen.values())


def expect(case: Case, request: Request) -> tuple[list[reference.Result], Seen]:
    """What the specification makes of one request."""
    seen: Seen = []

    def cancel(step: int, tokens: Ids, total: float) -> bool:
        seen.append((step, tokens, total))
        return (request.index, step) in case.cancels

    problem = case.problem(request)
    if case.options.sampling:
        return [reference.sample(problem, case.options, request.sample, cancel)], seen
    return reference.search(problem, case.options, cancel), seen


def assert_same(found: Sequence[Decoded], expected: Sequence[reference.Result], tolerance: float = 1e-5) -> None:
    assert [(d.ids, d.finish_reason) for d in found] == [(r.ids, r.finish_reason) for r in expected]
    for d, r in zip(found, expected, strict=True):
        assert d.token_scores == pytest.approx(r.token_scores, rel=tolerance, abs=tolerance)
        assert d.score == pytest.approx(r.score, rel=tolerance, abs=tolerance)


@st.composite
def search_cases(draw: st.DrawFn, sampling: bool = False) -> Case:
    """Everything that the options allow, over small tables."""
    vocab_size = draw(st.integers(4, 11))
    pad, start, eos = 0, draw(st.sampled_from([0, 1])), 2
    never = draw(st.sampled_from([tuple(sorted({pad, start})), ()]))
    kind = draw(st.sampled_from(["smooth", "ties", "holes"]))
    safe = vocab_size - 1  # always possible, so that a step never is without any token
    max_target = draw(st.integers(7, 14))
    options = draw(valid_options(vocab_size, safe, soft=kind != "ties", sampling=sampling))
    raised = draw(st.sampled_from([{}, {eos: 1.5}, {eos: -2.0}, {pad: 20.0, start: 20.0}]))
    table = Table(draw(st.integers(0, 2**32 - 1)), vocab_size, kind, raised, (safe,))
    count = draw(st.integers(1, 5))
    source = st.lists(st.integers(0, 9), min_size=1, max_size=5).map(tuple)
    prefix = st.lists(st.integers(0, vocab_size - 1), max_size=3).map(tuple)
    before = draw(st.sampled_from([(), (), (vocab_size - 1,), (eos, 0)]))
    case = Case(
        table,
        Target(vocab_size, start, eos, never, max_target, before),
        options,
        tuple(draw(st.lists(source, min_size=count, max_size=count))),
        tuple(draw(st.lists(prefix, min_size=count, max_size=count)) if draw(st.booleans()) else [()] * count),
        tuple(draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, 6)), max_size=2))),
    )
    check_options(case.options, case.target)
    return case


@st.composite
def stopping_cases(draw: st.DrawFn) -> Case:
    """Beams whose lists of finished hypotheses are full well before the limit, under every kind of penalty."""
    eos, vocab_size, beam_size = 2, draw(st.integers(4, 7)), draw(st.integers(2, 4))
    table = Table(draw(st.integers(0, 2**32 - 1)), vocab_size, "smooth", {eos: draw(st.sampled_from([0.0, 1.0, 2.0]))})
    options = TranslationOptions(
        beam_size=beam_size,
        n_best=beam_size,
        length_penalty=draw(st.sampled_from(PENALTIES)),  # type: ignore[arg-type]
        alpha=draw(st.sampled_from([0.0, 0.3, 0.6, 1.0, -0.3, -1.0])),
        length_offset=draw(st.integers(0, 1)),
        word_reward=draw(st.sampled_from([-1.0, -0.3, 0.3, 0.8])),
        max_length=draw(st.integers(5, 9)),
    )
    return Case(table, Target(vocab_size, 1, eos, (), 20), options, ((3, 4, 5),), ((),))


@st.composite
def valid_options(draw: st.DrawFn, vocab_size: int, safe: int, soft: bool, sampling: bool) -> TranslationOptions:
    beam_size = 1 if sampling else draw(st.integers(1, 8))
    min_length = draw(st.sampled_from([0, 1, 3]))
    ratio = draw(st.sampled_from([None, 0.0, 0.7, 2.0]))
    drawn: dict[str, Any] = {}
    if draw(st.booleans()):  # rules for which all logits must be looked at
        drawn = {
            "no_repeat_ngram_size": draw(st.sampled_from([0, 1, 2, 3])),
            "repetition_penalty": draw(st.sampled_from([1.0, 0.7, 1.3, 2.0])),
            "prefix_strength": draw(st.sampled_from([1.0, 0.5, 0.95])) if soft and not sampling else 1.0,
        }
    if sampling:
        drawn |= {
            "sampling": True,
            "temperature": draw(st.sampled_from([1.0, 0.3, 2.5])),
            "top_k": draw(st.sampled_from([0, 0, 1, 3, 50])),
            "top_p": draw(st.sampled_from([1.0, 0.9, 0.4, 0.01])),
            "seed": draw(st.sampled_from([0, 1, 2**33 + 5, 2**64 - 1])),
        }
    return TranslationOptions(
        beam_size=beam_size,
        n_best=draw(st.integers(1, 4 if sampling else beam_size)),
        length_penalty=draw(st.sampled_from(PENALTIES)),  # type: ignore[arg-type]
        alpha=draw(st.sampled_from([0.0, 0.6, 1.0, -0.5])),
        length_offset=draw(st.sampled_from([0, 1, 3])),
        word_reward=draw(st.sampled_from([-1.0, 0.0, 0.4, 3.0])),
        early_stopping=draw(st.booleans()),
        min_length=min_length,
        max_length=draw(st.one_of(st.none(), st.integers(max(1, min_length), 8))),
        max_length_ratio=ratio,
        max_length_extra=draw(st.integers(1, 4)),
        suppress_tokens=tuple(draw(st.lists(st.integers(0, vocab_size - 1).filter(lambda t: t != safe), max_size=2))),
        **drawn,
    )
