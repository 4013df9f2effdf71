"""A beam that is wide enough to hold every sequence must find what trying every sequence finds."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.search.cases import Case, decode
from tests.search.table_model import Ids, Table
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.step_model import Target

EOS, VOCAB, LIMIT = 2, 4, 4
TARGET = Target(VOCAB, start_id=0, eos_id=EOS, never_generated=(), max_length=LIMIT)
SOURCE = (1, 2, 3)
EVERYTHING = 121  # 40 sequences that end within LIMIT tokens, 81 that do not

PENALTIES: list[dict[str, Any]] = [
    {"length_penalty": "none"},
    *[
        {"length_penalty": "average", "alpha": alpha, "length_offset": offset}
        for alpha in (0.0, 0.6, 1.0, -0.7)
        for offset in (0, 1)
    ],
    *[{"length_penalty": "gnmt", "alpha": alpha} for alpha in (0.0, 0.6, 1.0, -0.7)],
    *[{"length_penalty": "word_reward", "word_reward": reward} for reward in (0.9, -0.9)],
]


@dataclass(frozen=True)
class Sequence:
    ids: Ids
    ended: bool
    total: float
    length: int


def every_sequence(table: Table) -> list[Sequence]:
    """All token sequences up to the limit, with their probabilities in float64."""
    others = [t for t in range(VOCAB) if t != EOS]
    ended = [(*ids, EOS) for n in range(LIMIT) for ids in itertools.product(others, repeat=n)]
    return [
        Sequence(ids[:-1] if ids[-1] == EOS else ids, ids[-1] == EOS, log_probability(table, ids), len(ids))
        for ids in [*ended, *itertools.product(others, repeat=LIMIT)]
    ]


def log_probability(table: Table, ids: Ids) -> float:
    logits = [table(SOURCE, ids[:i]).astype(np.float64) for i in range(len(ids))]
    return sum(float(z[token] - np.log(np.exp(z).sum())) for z, token in zip(logits, ids, strict=True))


def score_of(options: TranslationOptions, total: float, length: int) -> float:
    """The table of chapter 4.3."""
    match options.length_penalty:
        case "none":
            return total
        case "average":
            return total / math.pow(length + options.length_offset, options.alpha)
        case "gnmt":
            return total / math.pow((5 + length) / 6, options.alpha)
        case _:
            return total + options.word_reward * length


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: "-".join(map(str, p.values())))
@pytest.mark.parametrize("seed", range(4))
def test_an_exhaustive_beam_finds_the_optimum_and_every_score(penalty: dict[str, Any], seed: int) -> None:
    table = Table(seed, VOCAB, raised={EOS: 1.0})
    options = TranslationOptions(beam_size=EVERYTHING, n_best=EVERYTHING, max_length_ratio=None, **penalty)

    (found,) = decode(Case(table, TARGET, options, (SOURCE,), ((),)))

    expected = every_sequence(table)
    expected.sort(key=lambda s: (not s.ended, -score_of(options, s.total, s.length)))
    assert len(found) == EVERYTHING
    assert [d.ids for d in found] == [s.ids for s in expected]
    assert [d.finish_reason for d in found] == ["eos" if s.ended else "length" for s in expected]
    assert [d.score for d in found] == pytest.approx([score_of(options, s.total, s.length) for s in expected], rel=1e-5)


def test_the_optimum_depends_on_the_penalty() -> None:
    """Otherwise the tests above would say little of the penalties."""
    winners = set()
    for penalty in PENALTIES:
        options = TranslationOptions(beam_size=EVERYTHING, max_length_ratio=None, **penalty)
        winners.add(decode(Case(Table(0, VOCAB, raised={EOS: 1.0}), TARGET, options, (SOURCE,), ((),)))[0][0].ids)
    assert len(winners) > 2
