"""The search over real PyTorch models: cached steps against computing everything anew."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.search.real_models import (
    PRESETS,
    WAYS,
    Recompute,
    assert_follows_the_reference,
    ragged_requests,
    tiny_checkpoint,
)
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.search import search
from tfexport_train.decoding import TorchStepModel


@functools.cache
def recompute_of(preset: str) -> Recompute:
    return Recompute(tiny_checkpoint(preset).build_model())


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("preset", PRESETS)
def test_search_with_a_cache_is_search_without(preset: str, options: dict[str, Any]) -> None:
    recompute = recompute_of(preset)
    wanted = TranslationOptions(max_length=7, **options)
    found = assert_follows_the_reference(TorchStepModel(recompute.model), recompute, ragged_requests(7), wanted)
    assert len({h[0].ids for h in found}) > 3


@pytest.mark.parametrize("preset", PRESETS)
def test_teacher_forcing_gives_every_returned_score(preset: str) -> None:
    """A beam that took another one's cache would be scored as what it is not."""
    recompute = recompute_of(preset)
    options = TranslationOptions(beam_size=5, n_best=5, length_penalty="none", max_length=12)
    requests = ragged_requests(12)
    found = search(TorchStepModel(recompute.model), requests, options, recompute.target)
    for request, hypotheses in zip(requests, found, strict=True):
        assert len(hypotheses) == 5
        for h in hypotheses:
            expected = recompute.rescored(request, h.ids, h.finish_reason == "eos")
            assert h.score == pytest.approx(expected, abs=1e-4)


def test_some_beams_do_change_places() -> None:
    """Otherwise the tests above could not notice a cache that stays where it is."""
    recompute = recompute_of("annotated")
    model, moved = TorchStepModel(recompute.model), list[list[int]]()
    options = TranslationOptions(beam_size=4, max_length=9)
    with pytest.MonkeyPatch.context() as patch:
        cache_type = type(model.start([[3, 2]], 1))
        select = cache_type.select
        patch.setattr(cache_type, "select", lambda self, rows: moved.append(rows.tolist()) or select(self, rows))
        search(model, ragged_requests(3), options, recompute.target)
    orders = [rows for rows in moved[1:] if len(rows) == 12]  # the first step always begins with beam 0
    assert any(rows != sorted(rows) for rows in orders)
