"""The search over bundles in ONNX Runtime, both cache forms, against PyTorch that computes everything anew.

Exporting takes seconds, so that two bundles stand for all: the tiny one that other tests share, with its cache in
place, and a growing one. TFEXPORT_ALL_PRESETS=1 makes every preset in both forms.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
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
from tfexport.export import ExportOptions, export_bundle
from tfexport_runtime.bundle import read_bundle
from tfexport_runtime.cache import FIRST_CAPACITY
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.search import search
from tfexport_runtime.session import GrowingModel, InPlaceModel, SessionOptions, open_model
from tfexport_runtime.translator import Translator

ALWAYS = ("annotated", "portable")
EVERY = [(preset, operators) for preset in PRESETS for operators in ("ort", "portable")]
WANTED = EVERY if os.environ.get("TFEXPORT_ALL_PRESETS") else [ALWAYS]


@dataclass(frozen=True)
class Exported:
    path: Path
    model: InPlaceModel | GrowingModel
    recompute: Recompute


@pytest.fixture(scope="module", params=["tiny", *WANTED], ids=lambda p: p if p == "tiny" else "-".join(p))
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    if request.param == "tiny":
        checkpoint, path = request.getfixturevalue("tiny_checkpoint"), request.getfixturevalue("tiny_bundle")
    else:
        preset, operators = request.param
        checkpoint, path = tiny_checkpoint(preset), tmp_path_factory.mktemp("export") / "bundle"
        export_bundle(checkpoint, path, ExportOptions(operators=operators))
    model = open_model(read_bundle(path), SessionOptions(threads=1))
    return Exported(path, model, Recompute(checkpoint.build_model()))


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_the_bundle_finds_what_full_recomputation_finds(exported: Exported, options: dict[str, Any]) -> None:
    wanted = TranslationOptions(max_length=9, **options)
    found = assert_follows_the_reference(exported.model, exported.recompute, ragged_requests(7), wanted)
    assert len({h[0].ids for h in found}) > 3


@pytest.mark.parametrize("options", [WAYS["greedy"], WAYS["beam 4"], WAYS["samples"]], ids=str)
def test_batch_size_and_order_change_nothing(exported: Exported, options: dict[str, Any]) -> None:
    requests, target = ragged_requests(64), exported.recompute.target
    wanted = TranslationOptions(max_length=7, **options)
    together = search(exported.model, requests, wanted, target)
    for size in (1, 7):
        order = requests if size == 1 else requests[::-1]
        batches = [order[i : i + size] for i in range(0, 64, size)]
        parts = [h for batch in batches for h in search(exported.model, batch, wanted, target)]
        parts = parts if size == 1 else parts[::-1]
        assert sum([d.ids for d in a] != [d.ids for d in b] for a, b in zip(parts, together, strict=True)) <= 1
        for one, other in zip(parts, together, strict=True):  # one may be a tie within float32: its scores are equal
            assert [d.score for d in one] == pytest.approx([d.score for d in other], abs=1e-5)


def test_a_search_up_to_the_last_position(exported: Exported) -> None:
    """Longer than the first buffers; sentences leave on the way, because their limits differ."""
    wanted = TranslationOptions(beam_size=2, n_best=2, suppress_tokens=(2,), max_length_ratio=7.0, max_length_extra=0)
    found = assert_follows_the_reference(exported.model, exported.recompute, ragged_requests(5), wanted)
    lengths = [len(h[0].ids) for h in found]
    assert max(lengths) == exported.recompute.target.max_length > FIRST_CAPACITY
    assert len(set(lengths)) > 1


def test_golden_cases_replay(exported: Exported) -> None:
    """As any runtime does it: the manifest's own generation options do not count."""
    translator = Translator(exported.path, SessionOptions(threads=1))
    golden = json.loads((exported.path / "golden.json").read_text(encoding="utf-8"))
    assert golden["format_version"] == 1
    assert len(golden["cases"]) > 10
    for case in golden["cases"]:
        options = TranslationOptions(truncate_source=True).with_changes(case["options"])
        assert translator.bundle.source_tokenizer().encode(case["text"]) == case["source_ids"]
        (translation,) = translator.translate([case["text"]], options)
        for found, expected in zip(translation.hypotheses, case["hypotheses"], strict=True):
            assert list(found.ids) == expected["ids"]
            assert found.text == expected["text"]
            assert found.finish_reason == expected["finish_reason"]
            assert found.score == pytest.approx(expected["score"], abs=1e-4)
            assert found.token_scores == pytest.approx(expected["token_scores"], abs=1e-4)
