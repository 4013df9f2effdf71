"""What must hold of every search, whatever the model says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.cases import Case, decode, decode_watched, examples, search_cases, stopping_cases
from tests.search.table_model import FloatArray, Ids, Table, TableModel
from tfexport_runtime.hypothesis import Decoded, SentenceSearch
from tfexport_runtime.options import Progress, TranslationOptions
from tfexport_runtime.search import ModelOutputError, search
from tfexport_runtime.step_model import Request, Target

PAD, START, EOS = 0, 1, 2
TARGET = Target(9, START, EOS, (PAD, START), max_length=20)

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam": {"beam_size": 4, "n_best": 4},
    "unequal ends": {
        "beam_size": 2,
        "n_best": 2,
        "min_length": 3,
    },  # prefixes are ragged: some rows may end, others not
    "rules": {"beam_size": 4, "n_best": 2, "no_repeat_ngram_size": 2, "repetition_penalty": 1.2},
    "samples": {"sampling": True, "temperature": 1.5, "n_best": 2, "seed": 3},
}


def run(
    logits: Callable[[Ids, Ids], FloatArray], requests: list[Request], target: Target = TARGET, **options: Any
) -> list[list[Decoded]]:
    model = TableModel(logits, target.vocab_size, target.start_id)
    return search(model, requests, TranslationOptions(**options), target)


def ragged_requests(count: int, samples: int = 1) -> list[Request]:
    generator = np.random.default_rng(count)
    sources = [tuple(generator.integers(3, 9, generator.integers(1, 9)).tolist()) for _ in range(count)]
    prefixes = [tuple(generator.integers(3, 9, generator.integers(0, 3)).tolist()) for _ in range(count)]
    return [Request(s, p, i, k) for i, (s, p) in enumerate(zip(sources, prefixes, strict=True)) for k in range(samples)]


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_batch_size_and_order_change_nothing(options: dict[str, Any]) -> None:
    table = Table(5, 9, "ties", {EOS: -0.5})
    requests = ragged_requests(64, options["n_best"] if "sampling" in options else 1)
    alone = [run(table, [r], **options)[0] for r in requests]
    assert len({h[0].ids for h in alone}) > 30
    assert run(table, requests, **options) == alone
    sevens = [run(table, requests[i : i + 7], **options) for i in range(0, len(requests), 7)]
    assert [h for batch in sevens for h in batch] == alone
    order = np.random.default_rng(0).permutation(len(requests))
    assert run(table, [requests[i] for i in order], **options) == [alone[i] for i in order]


@examples(40)
@given(case=search_cases())
def test_n_best_only_cuts_the_list(case: Case) -> None:
    every = decode(case.with_options(n_best=case.options.beam_size))
    for n in range(1, case.options.beam_size + 1):
        assert decode(case.with_options(n_best=n)) == [hypotheses[:n] for hypotheses in every]


@examples(40)
@given(case=st.one_of(search_cases(), search_cases(sampling=True)))
def test_the_score_without_penalty_is_the_sum_of_token_scores(case: Case) -> None:
    for hypothesis in itertools.chain(*decode(case.with_options(length_penalty="none"))):
        assert hypothesis.score == sum(hypothesis.token_scores)
        assert len(hypothesis.token_scores) == len(hypothesis.ids) + (hypothesis.finish_reason == "eos")
        assert all(score <= 0 for score in hypothesis.token_scores)


@examples(40)
@given(case=search_cases())
def test_hypotheses_are_different_and_finished_ones_come_first_by_score(case: Case) -> None:
    for hypotheses in decode(case.with_options(n_best=case.options.beam_size)):
        assert 1 <= len(hypotheses) <= case.options.beam_size
        assert len({(h.ids, h.finish_reason) for h in hypotheses}) == len(hypotheses)
        keys = [(h.finish_reason != "eos", -h.score) for h in hypotheses]
        assert keys == sorted(keys)


@examples(120)
@given(case=stopping_cases())
def test_stopping_early_loses_nothing(case: Case) -> None:
    """The proof that nothing better can follow: going on to the limit gives the same hypotheses."""
    stopped = decode(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SentenceSearch, "_nothing_better_can_follow", lambda self: False)
        assert decode(case) == stopped


@pytest.mark.parametrize("early_stopping", [False, True])
def test_the_search_stops_as_soon_as_nothing_better_can_follow(early_stopping: bool) -> None:
    """All four beams are sure to end at the second step; the limit is far."""

    def sure(source: Ids, history: Ids) -> FloatArray:
        logits = np.zeros(9, np.float32)
        logits[EOS] = 30.0 if history else -30.0
        return logits

    seen: list[Progress] = []
    run(
        sure,
        [Request((3,))],
        beam_size=4,
        early_stopping=early_stopping,
        callback=lambda progress: bool(seen.append(progress)),  # type: ignore[func-returns-value]
    )
    assert len(seen) == 2


def cycle(source: Ids, history: Ids) -> FloatArray:
    """A model that wants to say 3 4 5 3 4 5 ... for ever, and to end with a small probability."""
    logits = np.full(9, -8.0, np.float32)
    logits[3 + len(history) % 3] = 4.0
    logits[EOS] = -4.0
    return logits


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_cycling_model_is_cut_at_the_limit_and_says_so(beam_size: int) -> None:
    (hypotheses,) = run(cycle, [Request((3,))], beam_size=beam_size, max_length=12, length_penalty="none")
    if beam_size == 1:
        assert hypotheses[0].ids == (3, 4, 5) * 4
        assert hypotheses[0].finish_reason == "length"
    (cut,) = run(cycle, [Request((3,))], beam_size=beam_size, max_length=12, suppress_tokens=(EOS,))
    assert cut[0].ids == (3, 4, 5) * 4
    assert cut[0].finish_reason == "length"


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_blocked_n_grams_never_repeat(size: int, beam_size: int) -> None:
    (hypotheses,) = run(
        cycle, [Request((3,))], beam_size=beam_size, n_best=beam_size, no_repeat_ngram_size=size, max_length=20
    )
    for hypothesis in hypotheses:
        grams = list(zip(*(hypothesis.ids[i:] for i in range(size)), strict=False))
        assert len(set(grams)) == len(grams)
    (free,) = run(cycle, [Request((3,))], beam_size=beam_size, max_length=20, suppress_tokens=(EOS,))
    grams = list(zip(*(free[0].ids[i:] for i in range(size)), strict=False))
    assert len(set(grams)) < len(grams)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_blocking_never_takes_eos(beam_size: int) -> None:
    """Every other token may come once; then only the end is left. An `eos` in the prefix does not block it either."""
    (hypotheses,) = run(
        cycle, [Request((3,), prefix=(EOS, 6))], beam_size=beam_size, no_repeat_ngram_size=1, min_length=5
    )
    assert hypotheses[0].finish_reason == "eos"
    assert sorted(hypotheses[0].ids[2:]) == [3, 4, 5, 7, 8]


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_pad_and_start_are_never_generated_though_they_are_likeliest(options: dict[str, Any]) -> None:
    table = Table(2, 9, raised={PAD: 50.0, START: 50.0})
    for hypotheses in run(table, ragged_requests(20), **options):
        assert all({PAD, START}.isdisjoint(h.ids) for h in hypotheses)
    free = replace(TARGET, never_generated=())
    assert any({PAD, START} & {*h[0].ids} for h in run(table, ragged_requests(20), free, **options))


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_model_that_gives_no_numbers_is_named_with_its_sentence(options: dict[str, Any], broken: float) -> None:
    table = Table(5, 9, raised={EOS: -20.0})

    def breaks(source: Ids, history: Ids) -> FloatArray:
        logits = table(source, history).copy()
        if source == (7, 7) and len(history) == 2:
            logits[4] = broken
        return logits

    requests = [Request((3,), index=0), Request((4, 5, 6), (5,), index=1), Request((7, 7), (5,), index=2)]
    with np.errstate(invalid="ignore"), pytest.raises(ModelOutputError, match="sentence 3;"):
        run(breaks, requests, **options)


def test_a_step_without_any_number_is_an_error_too() -> None:
    nothing = Table(5, 9, raised=dict.fromkeys(range(9), -np.inf))
    with np.errstate(invalid="ignore"), pytest.raises(ModelOutputError, match="sentence 1;"):
        run(nothing, [Request((3,))])


def test_cancelling_within_a_hard_prefix_returns_what_there_is() -> None:
    for penalty in ("none", "average", "gnmt", "word_reward"):
        (hypotheses,) = run(
            cycle,
            [Request((3,), prefix=(6, 7, 8))],
            length_penalty=penalty,
            alpha=-1.0,
            callback=lambda progress: len(progress.tokens) == 2,
        )
        assert hypotheses == [Decoded((6, 7), 0.0, (0.0, 0.0), "cancelled")]


def stripped(hypothesis: Decoded, count: int) -> Decoded:
    """Without its first ids."""
    return replace(hypothesis, ids=hypothesis.ids[count:], token_scores=hypothesis.token_scores[count:])


@examples(80)
@given(case=st.one_of(search_cases(), search_cases(sampling=True)), before=st.lists(st.integers(0, 3), max_size=2))
def test_prefix_ids_of_the_bundle_are_a_hard_prefix_that_no_hypothesis_shows(case: Case, before: list[int]) -> None:
    """Without rules that look at the history, which holds a caller's prefix and not the bundle's."""
    case = case.with_options(no_repeat_ngram_size=0, repetition_penalty=1.0, prefix_strength=1.0)
    ids = tuple(before)
    shown = replace(case, target=replace(case.target, prefix_ids=()), prefixes=tuple(ids + p for p in case.prefixes))
    hidden = replace(case, target=replace(case.target, prefix_ids=ids))
    found, calls = decode_watched(hidden)
    expected, expected_calls = decode_watched(shown)
    assert found == [[stripped(h, len(ids)) for h in hypotheses] for hypotheses in expected]
    assert calls == [[(step, seen[len(ids) :], total) for step, seen, total in each] for each in expected_calls]


def test_cancelling_within_the_prefix_ids_of_the_bundle_returns_an_empty_hypothesis() -> None:
    target = replace(TARGET, prefix_ids=(6, 7))
    (hypotheses,) = run(cycle, [Request((3,), prefix=(8,))], target, alpha=-1.0, callback=lambda progress: True)
    assert hypotheses == [Decoded((), 0.0, (), "cancelled")]


def test_rules_on_repetition_do_not_see_the_prefix_ids_of_the_bundle() -> None:
    target = replace(TARGET, prefix_ids=(4, 5))
    (hypotheses,) = run(lambda source, history: cycle(source, history[2:]), [Request((3,))], target, max_length=3)
    (ruled,) = run(
        lambda source, history: cycle(source, history[2:]),
        [Request((3,))],
        target,
        max_length=3,
        no_repeat_ngram_size=1,
        repetition_penalty=100.0,
    )
    assert hypotheses[0].ids == ruled[0].ids == (3, 4, 5)


def test_cancelling_one_sentence_leaves_the_others_alone() -> None:
    requests = ragged_requests(7)
    table = Table(5, 9, raised={EOS: -1.0})
    free = run(table, requests, beam_size=3)
    for cancelled in range(7):
        results = run(table, requests, beam_size=3, callback=lambda p, which=cancelled: p.sentence == which)
        assert results[:cancelled] + results[cancelled + 1 :] == free[:cancelled] + free[cancelled + 1 :]
        assert len(results[cancelled][0].ids) == 1
