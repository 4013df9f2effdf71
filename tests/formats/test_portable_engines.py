"""Bundles of standard operators in engines other than ONNX Runtime: the same tokens as PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx.reference
import pytest

from tests.conftest import made_once
from tests.export.conftest import make_checkpoint
from tfexport.export import ExportOptions, export_bundle
from tfexport.formats import openvino_engine
from tfexport.samples import random_sources
from tfexport_runtime.bundle import Bundle, read_bundle
from tfexport_runtime.errors import BundleError, OptionError
from tfexport_runtime.graph_pair import GrowingModel
from tfexport_runtime.hypothesis import Decoded
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.search import search
from tfexport_runtime.session import SessionOptions
from tfexport_runtime.step_model import Request, StepModel
from tfexport_train.decoding import TorchStepModel

FORM = "paper"  # its bundle is made for other tests as well


@pytest.fixture(scope="session")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    def export(path: Path) -> None:
        export_bundle(make_checkpoint(FORM), path, ExportOptions(operators="portable"))

    return read_bundle(made_once(tmp_path_factory, f"{FORM}-portable", export))


def searched(model: StepModel[Any], bundle: Bundle, sources: Sequence[Sequence[int]], beams: int) -> list[Decoded]:
    options = TranslationOptions(beam_size=beams, max_length=24 if len(sources) > 2 else 6, max_length_ratio=None)
    requests = [Request(tuple(source), (), i) for i, source in enumerate(sources)]
    return [hypotheses[0] for hypotheses in search(model, requests, options, bundle.manifest.search_target())]


def assert_like_pytorch(model: StepModel[Any], bundle: Bundle, sentences: int, beams: int) -> None:
    checkpoint = make_checkpoint(FORM)
    sources = random_sources(checkpoint.config, sentences, 9, 2)
    ours = searched(model, bundle, sources, beams)
    theirs = searched(TorchStepModel(checkpoint.build_model()), bundle, sources, beams)
    assert [d.ids for d in ours] == [d.ids for d in theirs]
    assert [d.score for d in ours] == pytest.approx([d.score for d in theirs], abs=1e-4)


@pytest.mark.parametrize("beams", [1, 3])
def test_the_reference_evaluator_of_onnx_finds_the_same_tokens(beams: int, portable: Bundle) -> None:
    encoder, decoder = (
        onnx.reference.ReferenceEvaluator(str(portable.path(f"{name}.onnx"))) for name in ("encoder", "decoder")
    )
    with np.errstate(divide="ignore"):  # it takes the logarithm of 0 for what is never generated
        assert_like_pytorch(GrowingModel(portable.manifest, encoder, decoder), portable, 2, beams)


@pytest.mark.parametrize("beams", [1, 4])
def test_openvino_finds_the_same_tokens(beams: int, portable: Bundle) -> None:
    pytest.importorskip("openvino", reason='needs OpenVINO: pip install "tfexport[openvino]", or make formats-test')
    model = openvino_engine.open_model(portable, SessionOptions(threads=1))
    assert_like_pytorch(model, portable, 12, beams)


def test_openvino_refuses_what_it_does_not_run(portable: Bundle, tiny_bundle: Path) -> None:
    with pytest.raises(BundleError, match="export with --ops portable"):
        openvino_engine.open_model(read_bundle(tiny_bundle), SessionOptions())
    with pytest.raises(OptionError, match="provider"):
        openvino_engine.open_model(portable, SessionOptions(provider="cuda"))
