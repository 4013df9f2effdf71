"""Both caches against plain numpy: rows move, sentences leave, buffers grow, garbage stays out of sight."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.search.cases import examples
from tests.search.plain_cache import (
    HEADS,
    LAYERS,
    LIMIT,
    SIZE,
    STEPS,
    Expected,
    assert_memory,
    new_memory,
    next_rows,
    start,
)
from tfexport_runtime.cache import GrowingCache, InPlaceCache


@examples(120)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.booleans(), STEPS)
def test_the_in_place_cache_is_plain_indexing(
    seed: int, count: int, beams: int, capacity: int, ragged: bool, actions: list[str]
) -> None:
    generator = np.random.default_rng(seed)
    memory = new_memory(generator, count)
    expected = start(memory, beams)
    cache = InPlaceCache.empty(memory, count * beams, LAYERS, HEADS, SIZE, capacity)
    cache.buffers[:] = np.nan
    for action in actions:
        if action == "step":
            if max(map(len, expected.rows)) == LIMIT:
                continue
            cache = write_token(cache.with_room(LIMIT), expected, generator, ragged)
        else:
            rows = next_rows(action, generator, expected)
            same = rows == list(range(len(expected.rows)))
            binding = cache.binding = object()
            before, cache = cache, cache.select(np.array(rows))
            expected.select(rows)
            assert not same or cache is before
            assert cache.binding is (binding if cache is before else None)
        assert cache.capacity <= LIMIT
        assert_memory(cache.memory, expected)
        assert_in_place(cache, expected)


def write_token(cache: InPlaceCache, expected: Expected, generator: np.random.Generator, ragged: bool) -> InPlaceCache:
    """What the graph does: the new token of each row goes to the end of that row. Ragged: some rows get none."""
    for row in range(len(cache.lengths)):
        if ragged and generator.random() < 0.3:
            continue
        token = generator.random((2 * LAYERS, HEADS, SIZE), np.float32)
        expected.rows[row].append(token)
        for i in range(2 * LAYERS):
            cache.layer(i)[cache.places[row], :, cache.lengths[cache.places[row]]] = token[i]
        cache.lengths[cache.places[row]] += 1
    for row, length in enumerate(cache.lengths):
        cache.buffers[:, row, :, length:] = np.nan
    return cache


def assert_in_place(cache: InPlaceCache, expected: Expected) -> None:
    assert cache.lengths.dtype == np.int32
    assert cache.lengths[cache.places].tolist() == [len(tokens) for tokens in expected.rows]
    assert (cache.places // expected.beams).tolist() == [r // expected.beams for r in range(len(expected.rows))]
    for i in range(2 * LAYERS):
        layer = cache.layer(i)
        assert layer.shape == (len(expected.rows), HEADS, cache.capacity, SIZE)
        assert layer.flags.c_contiguous
        for row, tokens in enumerate(expected.rows):
            for position, token in enumerate(tokens):
                assert np.array_equal(layer[cache.places[row], :, position], token[i])


@examples(120)
@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_only_a_beam_with_two_heirs_is_copied(count: int, beams: int, data: st.DataObject) -> None:
    parents = [data.draw(st.lists(st.integers(0, beams - 1), min_size=beams, max_size=beams)) for _ in range(count)]
    cache = InPlaceCache.empty(new_memory(np.random.default_rng(0), count), count * beams, LAYERS, HEADS, SIZE, 2)
    cache.lengths[:] = 1
    cache.buffers[:, :, :, 0] = np.arange(count * beams)[None, :, None, None]
    before = cache.buffers.copy()
    cache = cache.select(np.array([s * beams + p for s, family in enumerate(parents) for p in family]))
    changed = (cache.buffers != before).any(axis=(0, 2, 3, 4)).sum()
    assert changed == sum(beams - len(set(family)) for family in parents)


def test_what_a_place_shares_by_descent_is_not_copied_again() -> None:
    cache = InPlaceCache.empty(new_memory(np.random.default_rng(0), 2), 4, LAYERS, HEADS, SIZE, 8)
    cache.lengths[:], cache.buffers[:] = 3, np.arange(4)[None, :, None, None, None]
    cache = cache.select(np.array([0, 0, 2, 3]))  # place 1 becomes as place 0 for three tokens
    cache.lengths += 1
    cache.buffers[:, 1, :, :3], cache.buffers[:, :, :, 3] = np.nan, np.array([7, 8, 9, 10])[:, None, None]
    cache = cache.select(np.array([0, 0, 2, 2]))  # one heir of a relative, one of a stranger
    assert np.isnan(cache.buffers[:, 1, :, :3]).all()
    assert (cache.buffers[:, 1, :, 3] == 7).all()
    assert (cache.buffers[:, 3, :, :3] == 2).all()
    assert (cache.buffers[:, 3, :, 3] == 9).all()


def test_a_buffer_doubles_and_keeps_to_the_limit() -> None:
    cache = InPlaceCache.empty(new_memory(np.random.default_rng(0), 1), 2, LAYERS, HEADS, SIZE, 3)
    assert cache.with_room(LIMIT) is cache
    capacities = []
    for used in (2, 3, 6, 12):
        cache.lengths[:] = used
        cache = cache.with_room(LIMIT)
        capacities.append(cache.capacity)
    assert capacities == [3, 6, 12, 13]


@examples(60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3), STEPS)
def test_the_growing_cache_is_plain_indexing(seed: int, count: int, beams: int, actions: list[str]) -> None:
    generator = np.random.default_rng(seed)
    memory = new_memory(generator, count)
    expected = start(memory, beams)
    cache = GrowingCache.empty(memory, count * beams, LAYERS, HEADS, SIZE)
    for action in actions:
        if action == "step":
            tokens = generator.random((2 * LAYERS, len(expected.rows), HEADS, 1, SIZE), np.float32)
            layers = [np.concatenate([old, tokens[i]], axis=2) for i, old in enumerate(cache.layers)]
            cache = GrowingCache(cache.memory, layers, cache.lengths + 1)
            for row, history in enumerate(expected.rows):
                history.append(tokens[:, row, :, 0])
        else:
            rows = next_rows(action, generator, expected)
            cache = cache.select(np.array(rows))
            expected.select(rows)
        assert_memory(cache.memory, expected)
        assert cache.lengths.tolist() == [len(tokens) for tokens in expected.rows]
        for i, layer in enumerate(cache.layers):
            assert layer.flags.c_contiguous
            expected_layer = [np.stack([t[i] for t in history], axis=1) for history in expected.rows if history]
            assert layer.shape[2] == 0 if not expected_layer else np.array_equal(layer, np.array(expected_layer))
