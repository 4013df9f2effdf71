"""Options: every contradiction has its sentence, and all of them come at once, before any work."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tfexport_runtime.errors import OptionError
from tfexport_runtime.options import TranslationOptions, check_options
from tfexport_runtime.step_model import Target

TARGET = Target(vocab_size=10, start_id=1, eos_id=2, never_generated=(0, 1), max_length=20)

CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"beam_size": 0}, "beam_size must be at least 1, not 0; n_best 1 needs a beam_size of at least 1"),
    ({"n_best": 0}, "n_best must be at least 1, not 0"),
    ({"n_best": 3, "beam_size": 2}, "n_best 3 needs a beam_size of at least 3"),
    ({"sampling": True, "beam_size": 2}, "sampling and beam search exclude each other; leave beam_size at 1"),
    ({"length_penalty": "luck"}, "length_penalty must be one of none, average, gnmt, word_reward, not 'luck'"),
    ({"alpha": 11.0}, "alpha must be in [-10, 10], not 11.0"),
    ({"alpha": math.nan}, "alpha must be in [-10, 10], not nan"),
    ({"word_reward": -math.inf}, "word_reward must be in [-1e6, 1e6], not -inf"),
    ({"length_offset": -1}, "length_offset must not be negative, not -1"),
    ({"min_length": -1}, "min_length must not be negative, not -1"),
    ({"max_length": 0}, "max_length must be at least 1, not 0"),
    ({"min_length": 5, "max_length": 4}, "min_length 5 is above max_length 4"),
    ({"max_length_ratio": -0.5}, "max_length_ratio must not be negative, not -0.5"),
    ({"max_length_ratio": math.nan}, "max_length_ratio must not be negative, not nan"),
    ({"max_length_extra": -1}, "max_length_extra must not be negative, not -1"),
    ({"temperature": 0.0}, "temperature must be in [1e-9, 1e9], not 0.0; for the best token use greedy search"),
    ({"temperature": math.inf}, "temperature must be in [1e-9, 1e9], not inf; for the best token use greedy search"),
    ({"top_k": -1}, "top_k must not be negative, not -1"),
    ({"top_p": 0.0}, "top_p must be in (0, 1], not 0.0"),
    ({"top_p": 1.1}, "top_p must be in (0, 1], not 1.1"),
    ({"seed": -1}, "seed must be in [0, 2^64), not -1"),
    ({"seed": 2**64}, f"seed must be in [0, 2^64), not {2**64}"),
    ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size must not be negative, not -1"),
    ({"repetition_penalty": 0.0}, "repetition_penalty must be in [0.001, 1000], not 0.0"),
    ({"suppress_tokens": (3, 10)}, "suppress_tokens must be ids below the vocabulary size 10"),
    ({"suppress_tokens": (-1,)}, "suppress_tokens must be ids below the vocabulary size 10"),
    ({"prefix_strength": 0.0}, "prefix_strength must be in (0, 1], not 0.0"),
    (
        {"sampling": True, "prefix_strength": 0.5},
        "sampling and a soft prefix exclude each other; leave prefix_strength at 1",
    ),
    ({"max_batch_tokens": 0}, "max_batch_tokens must be at least 1, not 0"),
]


@pytest.mark.parametrize(("changes", "sentence"), CONTRADICTIONS, ids=str)
def test_each_contradiction_has_its_sentence(changes: dict[str, Any], sentence: str) -> None:
    assert problem_of(changes) == sentence


def test_all_contradictions_come_at_once() -> None:
    changes = {"beam_size": 2, "n_best": 3, "top_p": 2.0, "seed": -1}
    assert problem_of(changes).split("; ") == [
        "n_best 3 needs a beam_size of at least 3",
        "top_p must be in (0, 1], not 2.0",
        "seed must be in [0, 2^64), not -1",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"beam_size": 4, "n_best": 4},
        {"sampling": True, "n_best": 7},
        {"alpha": -0.5, "word_reward": -2.0},
        {"max_length": None, "max_length_ratio": None},
        {"max_length_ratio": math.inf},
        {"min_length": 3, "max_length": 3},
        {"seed": 2**64 - 1},
        {"suppress_tokens": (2,)},
        {"suppress_tokens": (3, 4, 5, 6, 7, 8, 9)},
        {"suppress_tokens": (3, 4, 5, 6, 7, 8), "min_length": 1},
    ],
    ids=str,
)
def test_what_makes_sense_is_taken(changes: dict[str, Any]) -> None:
    assert problem_of(changes) == ""


@pytest.mark.parametrize(
    "changes",
    [{"suppress_tokens": tuple(range(2, 10))}, {"suppress_tokens": tuple(range(3, 10)), "min_length": 1}],
    ids=["all", "all but eos, which must wait"],
)
def test_options_that_leave_no_token_are_refused(changes: dict[str, Any]) -> None:
    assert problem_of(changes) == "suppress_tokens, min_length and the bundle together leave no token to generate"


def test_unknown_names_are_refused_together() -> None:
    with pytest.raises(OptionError, match=r"^unknown generation option beam, nbest$"):
        TranslationOptions().with_changes({"nbest": 2, "beam": 3, "seed": 1})


def test_changes_leave_the_rest_and_make_tuples_of_lists() -> None:
    options = TranslationOptions(beam_size=3).with_changes({"suppress_tokens": [4, 5]})
    assert options == TranslationOptions(beam_size=3, suppress_tokens=(4, 5))


def problem_of(changes: dict[str, Any]) -> str:
    try:
        check_options(TranslationOptions().with_changes(changes), TARGET)
    except OptionError as error:
        return str(error)
    return ""
