"""Sampling: the generator by its published answers, the draws by their frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.search.table_model import FloatArray, Ids, Table, TableModel
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.proposers import draw_token
from tfexport_runtime.random import draw_block, exponential_times, fnv1a_64, philox4x32
from tfexport_runtime.search import search
from tfexport_runtime.step_model import Request, Target

VOCAB, EOS = 8, 2
TARGET = Target(VOCAB, 1, EOS, (), max_length=64)
LOGITS = np.array([0.3, -1.0, 0.5, 2.0, 2.0, -0.7, 1.1, 0.0], np.float32)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_known_answers_of_its_authors(
    counter: tuple[int, int, int, int], key: tuple[int, int], words: str
) -> None:
    assert " ".join(f"{word:08x}" for word in philox4x32(counter, key)) == words


def test_fnv1a_gives_the_known_answers_of_its_authors() -> None:
    assert fnv1a_64([]) == 0xCBF29CE484222325  # of ""
    assert fnv1a_64([int.from_bytes(b"foob", "little")]) == 0xDD120E790C2512AF


def test_the_block_of_a_step_uses_all_of_seed_step_sample_and_stream() -> None:
    for step in range(20):
        assert draw_block(1, step, 3, 4) == philox4x32((step, 3, 4, 0), (1, 0))
    others = [(1 + 2**32, 2, 3, 4), (1, 3, 3, 4), (1, 2, 4, 4), (1, 2, 3, 4 + 2**32)]
    assert len({draw_block(1, 2, 3, 4), *(draw_block(*numbers) for numbers in others)}) == 5


@pytest.mark.parametrize("count", [1, 3, 4, 1001])
def test_every_id_has_a_time_of_its_own(count: int) -> None:
    a0, a1, a2, a3 = block = draw_block(2**64 - 1, 5, 6, 2**64 - 1)
    words = [philox4x32((token // 4, 0, a2, a3), (a0, a1))[token % 4] for token in range(count)]
    np.testing.assert_allclose(exponential_times(block, count), [-np.log((w + 0.5) / 2**32) for w in words], rtol=1e-12)


def history_free(source: Ids, history: Ids) -> FloatArray:
    return LOGITS


def draw(requests: list[Request], **options: Any) -> list[tuple[int, ...]]:
    model = TableModel(history_free, VOCAB, 1)
    wanted = TranslationOptions(sampling=True, suppress_tokens=(EOS,), **options)
    return [h[0].ids for h in search(model, requests, wanted, TARGET)]


def probabilities(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> dict[int, float]:
    """What the definition says, for LOGITS without EOS."""
    weights = {t: float(np.exp(LOGITS[t] / temperature)) for t in range(VOCAB) if t != EOS}
    best_first = sorted(weights, key=lambda t: (-LOGITS[t], t))[: top_k or None]
    total, kept, mass = sum(weights[t] for t in best_first), [], 0.0
    for token in best_first:
        kept.append(token)
        mass += weights[token]
        if mass >= top_p * total:
            break
    return {t: weights[t] / mass for t in kept}


def assert_frequencies(drawn: list[int], expected: dict[int, float]) -> None:
    """Chi-square test; the bound is passed by chance once in ten thousand, and the seeds are fixed."""
    assert set(drawn) <= set(expected)
    n = len(drawn)
    statistic = sum((drawn.count(t) - n * p) ** 2 / (n * p) for t, p in expected.items())
    bounds = {1: 15.1, 2: 18.4, 3: 21.1, 4: 23.5, 5: 25.7, 6: 27.9}
    assert statistic < bounds[len(expected) - 1]


CUTS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 3},
    {"top_p": 0.7},
    {"temperature": 1.5, "top_k": 5, "top_p": 0.8},
]


@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_frequencies_over_sentences(cuts: dict[str, Any]) -> None:
    requests = [Request((i, i // 7), index=i) for i in range(2000)]
    drawn = draw(requests, seed=11, max_length=1, **cuts)
    assert_frequencies([ids[0] for ids in drawn], probabilities(**cuts))


def test_frequencies_over_samples_seeds_and_steps() -> None:
    samples = draw([Request((5, 6), sample=i) for i in range(2000)], seed=11, max_length=1)
    assert_frequencies([ids[0] for ids in samples], probabilities())
    seeds = [draw([Request((5, 6))], seed=seed << 20, max_length=1)[0][0] for seed in range(1000)]
    assert_frequencies(seeds, probabilities())
    steps = draw([Request((i,)) for i in range(50)], max_length=60, max_length_ratio=None)
    assert_frequencies([token for ids in steps for token in ids], probabilities())


def test_neighbouring_draws_are_independent() -> None:
    """Pairs of the two likeliest tokens and the rest, by step, and by sample."""
    ids = draw([Request((5, 6), sample=i) for i in range(2000)], max_length=2)
    p = probabilities()
    kinds = {3: p[3], 4: p[4], 0: 1 - p[3] - p[4]}
    pairs = {a * 10 + b: kinds[a] * kinds[b] for a in kinds for b in kinds}
    kind = [[t if t in (3, 4) else 0 for t in pair] for pair in ids]
    bound = 31.9  # 8 degrees of freedom, 1e-4
    for drawn in (
        [a * 10 + b for a, b in kind],
        [x[0] * 10 + y[0] for x, y in zip(kind[::2], kind[1::2], strict=True)],
    ):
        n = len(drawn)
        assert sum((drawn.count(k) - n * q) ** 2 / (n * q) for k, q in pairs.items()) < bound


def test_a_seed_repeats_its_draws_in_any_batch() -> None:
    requests = [Request((i, 3), index=i, sample=k) for i in range(20) for k in range(2)]
    once = draw(requests, seed=5)
    assert draw(requests, seed=5) == once
    assert draw(requests[::-1], seed=5)[::-1] == once
    assert [draw([r], seed=5)[0] for r in requests] == once
    assert draw(requests, seed=6) != once
    assert len(set(once)) == len(once)


def test_a_hard_prefix_does_not_use_up_draws() -> None:
    plain, prefixed = draw([Request((4, 3)), Request((4, 3), prefix=(5, 6, 5))], seed=9)
    assert prefixed[:3] == (5, 6, 5)
    assert prefixed[3:] == plain


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-9}], ids=str)
def test_the_narrowest_cut_is_greedy_search(options: dict[str, Any]) -> None:
    table, requests = Table(3, VOCAB, raised={EOS: -1.0}), [Request((i, 2)) for i in range(20)]
    model = TableModel(table, VOCAB, 1)
    sampled = search(model, requests, TranslationOptions(sampling=True, **options), TARGET)
    assert sampled == search(model, requests, TranslationOptions(), TARGET)


def drawn_ids(logits: list[float], **cuts: Any) -> set[int]:
    options = TranslationOptions(sampling=True, **cuts)
    return {draw_token(np.array(logits, np.float32), options, draw_block(1, step, 0, 0)) for step in range(400)}


def test_only_what_is_kept_is_drawn() -> None:
    assert drawn_ids([0, 0, 0, 0]) == {0, 1, 2, 3}
    assert drawn_ids([-np.inf, 0, -np.inf, 0]) == {1, 3}
    assert drawn_ids([0, 0, 0, 0], top_k=2) == {0, 1}
    # With top_p at a border, the token that reaches it is the last one kept.
    assert drawn_ids([0, 0, 0, 0], top_p=0.5) == {0, 1}
    assert drawn_ids([0, 0, 0, 0], top_p=0.5001) == {0, 1, 2}
    assert drawn_ids([0, 1, 2, 3], top_k=3, top_p=1e-9) == {3}


def test_logits_that_differ_in_their_last_digits_give_the_same_draws() -> None:
    """As on another processor. Among 5,000 tokens many are nearly as likely."""
    generator, options = np.random.default_rng(1), TranslationOptions(sampling=True)
    logits = generator.normal(size=5000).astype(np.float32)
    others = (logits * (1 + 1e-7 * generator.normal(size=5000))).astype(np.float32)
    blocks = [draw_block(3, step, 0, 0) for step in range(300)]
    assert [draw_token(logits, options, b) for b in blocks] == [draw_token(others, options, b) for b in blocks]
