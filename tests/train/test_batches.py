from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tfexport_train.batches import BatchStream, make_batch, ordered_batches, shuffled_batches
from tfexport_train.corpus import EncodedPairs
from tfexport_train.errors import ConfigError

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)


def pairs_of(lengths: list[tuple[int, int]]) -> EncodedPairs:
    sources = [np.full(s, 5) for s, _ in lengths]
    targets = [np.array([1, *[6] * (t - 1), 2]) for _, t in lengths]
    return EncodedPairs(sources, targets, 0, 0)


@given(lengths=LENGTHS, max_tokens=st.integers(60, 400), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_every_pair_once_and_no_batch_above_the_bound(
    lengths: list[tuple[int, int]], max_tokens: int, seed: int, epoch: int
) -> None:
    pairs = pairs_of(lengths)
    for batches in (shuffled_batches(pairs, max_tokens, seed, epoch), ordered_batches(pairs, max_tokens)):
        assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
        for indices in batches:
            batch = make_batch(pairs, indices, 0)
            assert batch.source.numel() + batch.target_input.numel() <= max_tokens


def test_seed_and_epoch_alone_decide_the_order() -> None:
    pairs = pairs_of([(1 + i % 20, 1 + i * 7 % 20) for i in range(300)])

    def order(seed: int, epoch: int) -> list[list[int]]:
        return [batch.tolist() for batch in shuffled_batches(pairs, 200, seed, epoch)]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_pairs_of_similar_length_meet() -> None:
    pairs = pairs_of([(1 + i % 20, 1 + i % 20) for i in range(400)])
    real = sum(len(s) + len(t) - 1 for s, t in zip(pairs.sources, pairs.targets, strict=True))
    batches = [make_batch(pairs, b, 0) for b in shuffled_batches(pairs, 400, 1, 0)]
    assert real / sum(b.source.numel() + b.target_input.numel() for b in batches) > 0.9


def test_a_stream_continues_in_the_middle_of_an_epoch() -> None:
    pairs = pairs_of([(1 + i % 20, 1 + i * 7 % 20) for i in range(100)])
    stream = BatchStream(pairs, 300, seed=4, pad_id=0)
    batches = list(islice(stream, 30))
    assert stream.epoch > 1
    early = BatchStream(pairs, 300, seed=4, pad_id=0)
    list(islice(early, 11))
    late = BatchStream(pairs, 300, seed=4, pad_id=0, epoch=early.epoch, index=early.index)
    for ours, expected in zip(islice(late, 19), batches[11:], strict=True):
        assert torch.equal(ours.source, expected.source)
        assert torch.equal(ours.target_output, expected.target_output)


def test_the_input_is_the_output_one_token_later() -> None:
    pairs = EncodedPairs([np.array([7, 2]), np.array([8, 9, 2])], [np.array([1, 5, 2]), np.array([1, 5, 6, 2])], 0, 0)
    batch = make_batch(pairs, [0, 1], 0)
    assert batch.source.tolist() == [[7, 2, 0], [8, 9, 2]]
    assert batch.target_output.tolist() == [[5, 2, 0], [5, 6, 2]]
    assert batch.target_input.tolist() == [[1, 5, 2], [1, 5, 6]]
    assert (batch.source_tokens, batch.target_tokens) == (5, 5)


def test_a_pair_that_fits_no_batch_is_refused_with_its_length() -> None:
    with pytest.raises(ConfigError, match="max_tokens 20 is below the longest pair, 25 tokens"):
        shuffled_batches(pairs_of([(3, 3), (15, 10)]), 20, 1, 0)
