"""Graphs whose every shape is a number: PyTorch's numbers, and the tokens of the bundle with any shapes."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from tests.export.conftest import FORMS, make_checkpoint
from tests.formats.further_outputs import assert_further_outputs
from tfexport.errors import ExportError
from tfexport.export import ExportOptions, export_bundle
from tfexport.formats.fixed_pair import parse_fixed_shape
from tfexport.graphs.fixed import FixedDecoderGraph, FixedEncoderGraph
from tfexport.graphs.signature import FixedShape
from tfexport.mobile import mobile_verdicts
from tfexport_runtime.bundle import read_bundle
from tfexport_runtime.errors import InputError
from tfexport_runtime.fixed_model import FixedModel
from tfexport_runtime.session import SessionOptions, open_model
from tfexport_runtime.translator import Translator
from tfexport_train.checkpoint import Checkpoint

TEXTS = ["ein hund läuft", "", "die grüne wiese am see", "ball", "kleiner hund und roter ball spielt schnell", "mit"]
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam 3, rows of two sentences in a chunk": {"beam_size": 3, "n_best": 3},
    "beam 4": {"beam_size": 4, "n_best": 4, "length_penalty": "gnmt"},
    "beam 7, more candidates than the graph gives": {"beam_size": 7, "n_best": 7, "suppress_tokens": (9, 11)},
    "samples": {"sampling": True, "n_best": 3, "seed": 5, "top_k": 30},
    "rules": {"beam_size": 2, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_length": 3},
}


@pytest.fixture(scope="module")
def model(tiny_fixed_bundle: Path) -> FixedModel:
    opened = open_model(read_bundle(tiny_fixed_bundle), SessionOptions(threads=1))
    assert isinstance(opened, FixedModel)
    return opened


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_a_search_finds_what_it_finds_with_any_shapes(
    options: dict[str, Any], tiny_bundle: Path, tiny_fixed_bundle: Path
) -> None:
    found = []
    for path in (tiny_bundle, tiny_fixed_bundle):
        translator = Translator(path, SessionOptions(threads=1))
        translations = translator.translate(TEXTS, translator.options({"max_length": 12, **options}))
        found.append([hypothesis for t in translations for hypothesis in t.hypotheses])
    assert [h.ids for h in found[1]] == [h.ids for h in found[0]]
    assert [h.score for h in found[1]] == pytest.approx([h.score for h in found[0]], abs=1e-5)
    assert len({h.ids for h in found[0]}) > 3


def test_outputs_on_request_are_those_of_pytorch(tiny_fixed_bundle: Path, tiny_checkpoint: Checkpoint) -> None:
    texts = [text for text in TEXTS if text][:3]
    assert_further_outputs(read_bundle(tiny_fixed_bundle), tiny_checkpoint, texts, {"cross_attention": -1}, (2, 0))


def test_a_target_as_long_as_the_graph_takes(tiny_bundle: Path, tiny_fixed_bundle: Path) -> None:
    wanted = {"beam_size": 2, "suppress_tokens": (2,), "max_length_extra": 100}
    shorter = Translator(tiny_fixed_bundle, SessionOptions(threads=1))
    (found,) = shorter.translate(["ein hund"], shorter.options(wanted))
    assert len(found.best.ids) == 40
    longer = Translator(tiny_bundle, SessionOptions(threads=1))
    (expected,) = longer.translate(["ein hund"], longer.options({**wanted, "max_length": 40}))
    assert found.best.ids == expected.best.ids


def test_a_longer_source_is_refused_or_cut(tiny_fixed_bundle: Path) -> None:
    translator = Translator(tiny_fixed_bundle, SessionOptions(threads=1))
    with pytest.raises(InputError, match="the model takes 47"):
        translator.translate([" ".join(TEXTS * 9)])


def test_no_shape_is_open_or_empty_and_operators_are_standard(tiny_fixed_bundle: Path) -> None:
    bundle = read_bundle(tiny_fixed_bundle)
    assert (bundle.manifest.cache.form, bundle.manifest.operators) == ("fixed", "portable")
    assert (bundle.manifest.model.max_source_length, bundle.manifest.model.max_target_length) == (48, 40)
    assert bundle.manifest.requirements.domains == ("",)
    for name, info in bundle.manifest.graphs.items():
        graph = onnx.shape_inference.infer_shapes(onnx.load(bundle.path(info.file)), strict_mode=True).graph
        assert {node.domain for node in graph.node} == {""}
        shapes = {v.name: v.type.tensor_type.shape.dim for v in (*graph.input, *graph.output, *graph.value_info)}
        assert len(shapes) > len(graph.node)
        assert [name for name, axes in shapes.items() if not all(axis.dim_value > 0 for axis in axes)] == []
        for tensor in (*info.inputs, *info.outputs):
            assert tuple(axis.dim_value for axis in shapes[tensor.name]) == tensor.shape
        assert {t.type for t in info.inputs} <= {"int32", "float32"}, name


def test_weights_are_stored_once(tiny_checkpoint: Checkpoint, tiny_fixed_bundle: Path) -> None:
    parameters = list(tiny_checkpoint.build_model().parameters())
    tables = 4 * (48 + 40) * tiny_checkpoint.config.d_model + 2 * 4 * 40 * 40  # positions, and places in the cache
    most = sum(p.nbytes for p in parameters) + tables + 64 * (len(parameters) + 4)
    assert (tiny_fixed_bundle / "weights.bin").stat().st_size <= most


@pytest.mark.parametrize("garbage", [1e4, "random"])
def test_what_lies_behind_a_row_changes_nothing(garbage: float | str, model: FixedModel) -> None:
    """Rows of lengths 11, 0, 4 and 39, in one run."""
    generator = np.random.default_rng(1)
    source, lengths = [[5, 9, 17, 2]] * 4, np.array([11, 0, 4, 39], np.int32)
    tokens = np.array([7, 8, 9, 10])
    expected = None
    for spoil in (False, True):
        cache = replace(model.start(source, 1), lengths=lengths)
        for layer in cache.chunks[0].layers:
            past = np.random.default_rng(2).standard_normal(layer.shape, np.float32)
            unused = np.arange(layer.shape[2]) >= lengths[:, None]  # [R, T]
            noise = generator.standard_normal(layer.shape, np.float32) * 1e6
            behind = noise if garbage == "random" else np.float32(garbage)
            layer[:] = np.where(unused[:, None, :, None], behind if spoil else np.float32(0), past)
        logits, after = model.step_logits(tokens, cache)
        kept = (logits, after.chunks[0].layers)
        if expected is not None:
            np.testing.assert_array_equal(kept[0], expected[0])
            for found, wanted in zip(kept[1], expected[1], strict=True):
                np.testing.assert_array_equal(found, wanted)
        expected = kept


def test_padding_of_the_source_changes_nothing(tiny_fixed_bundle: Path, model: FixedModel) -> None:
    session = onnxruntime.InferenceSession(tiny_fixed_bundle / "encoder.onnx", providers=["CPUExecutionProvider"])
    ids, mask = np.full((1, 48), 33, np.int32), np.zeros((1, 48), np.int32)
    ids[0, :4], mask[0, :4] = [5, 9, 17, 2], 1
    *found, _ = session.run(None, {"input_ids": ids, "attention_mask": mask})
    for other, ours in zip(found, model.encode([[5, 9, 17, 2]]).cross, strict=True):
        np.testing.assert_array_equal(other[:, :, :4], ours[:, :, :4])


@pytest.mark.parametrize("form", FORMS)
def test_both_modules_compute_what_the_model_computes(form: str) -> None:
    """Before the trace, in every form of model; rows of two sentences, and caches full of large numbers."""
    model, shape = make_checkpoint(form).build_model(), FixedShape(source=9, target=7, rows=3)
    encoder, decoder = FixedEncoderGraph(model, shape), FixedDecoderGraph(model, shape)
    sources, owners = [[5, 6, 7, 8, 2], [11, 12, 2]], [0, 0, 1]
    padded = torch.tensor([[*source, *[model.config.pad_id] * (9 - len(source))] for source in sources])
    mask = torch.tensor([[int(i < len(source)) for i in range(9)] for source in sources], dtype=torch.int32)
    target = torch.tensor([[1, 20, 30, 40, 50, 60, 70], [1, 21, 31, 41, 51, 61, 71], [1, 22, 32, 42, 52, 62, 72]])
    with torch.no_grad():
        memory = model.encode(padded[owners], mask[owners].bool())
        expected = model.decode(memory, mask[owners].bool(), target)
        single = [encoder(padded[i : i + 1].int(), mask[i : i + 1]) for i in owners]
        cross = [tuple(torch.cat([s[layer][p] for s in single]) for p in (0, 1)) for layer in range(len(single[0]))]
        for ours, theirs in zip(chain(*cross), chain(*model.cross_key_values(memory)), strict=True):
            seen = mask[owners][:, None, :, None]
            torch.testing.assert_close(ours * seen, theirs * seen, atol=2e-5, rtol=1e-4)
        head = (3, model.config.num_heads, 7, model.config.head_size)
        past = [(torch.full(head, 1e4), torch.full(head, -1e4)) for _ in model.decoder_layers]
        no_bias = torch.zeros(1, model.config.target_vocab_size)
        for step in range(7):
            lengths = torch.full((3,), step, dtype=torch.int32)
            scores, ids, logits, past = decoder(
                target[:, step : step + 1].int(), lengths, mask[owners], no_bias, past, cross
            )
            torch.testing.assert_close(logits, expected[:, step], atol=5e-5, rtol=1e-4)
            best = torch.log_softmax(logits, -1).topk(4)
            assert torch.equal(ids, best.indices)
            torch.testing.assert_close(scores, best.values)


def test_phones_are_said_to_take_the_graphs_in_one_piece(tiny_bundle: Path, tiny_fixed_bundle: Path) -> None:
    found = {(v.graph, v.provider): v for v in mobile_verdicts(read_bundle(tiny_fixed_bundle))}
    assert len(found) == 6
    for graph in ("encoder", "decoder"):
        for provider in ("NNAPI", "Core ML MLProgram"):
            verdict = found[graph, provider]
            assert (verdict.verdict, verdict.partitions, verdict.taken_if_fixed) == ("yes", 1, None)
            assert set(verdict.unsupported) <= {"Gather", "LogSoftmax", "TopK"}
            assert verdict.taken < verdict.nodes or not verdict.unsupported
            assert "100.0%" in verdict.advice or verdict.unsupported
    assert found["decoder", "Core ML NeuralNetwork"].verdict == "no"
    shapes_open = mobile_verdicts(read_bundle(tiny_bundle))
    assert {v.verdict for v in shapes_open} == {"no"}
    assert all(v.taken_if_fixed is not None and v.taken_if_fixed > v.taken for v in shapes_open)


@pytest.mark.parametrize("text", ["", "source=64", "source=64,target=64", "source=64,target=64,rows=x", "a=1,b=2,c=3"])
def test_sizes_that_are_not_given_in_full_are_refused(text: str) -> None:
    with pytest.raises(ExportError, match="source=64,target=64,rows=4"):
        parse_fixed_shape(text)


def test_sizes_are_read_in_any_order() -> None:
    assert parse_fixed_shape("rows=4, source=64,target=32") == FixedShape(64, 32, 4)


REFUSED: dict[str, tuple[FixedShape, dict[str, Any], str]] = {
    "source beyond the model": (FixedShape(65, 40, 4), {}, "source must be from 2 to 64"),
    "no room for a token": (FixedShape(1, 40, 4), {}, "source must be from 2"),
    "no target": (FixedShape(48, 0, 4), {}, "target must be from 1 to 64"),
    "no rows": (FixedShape(48, 40, 0), {}, "rows must be from 1"),
    "precision": (FixedShape(48, 40, 4), {"precision": "int8"}, "choose --precision fp32"),
    "another engine": (FixedShape(48, 40, 4), {"format": "torchscript"}, "not of torchscript"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_with_fixed_shapes_is_refused(case: str, tiny_checkpoint: Checkpoint, tmp_path: Path) -> None:
    shape, options, message = REFUSED[case]
    with pytest.raises(ExportError, match=message):
        export_bundle(tiny_checkpoint, tmp_path / "bundle", ExportOptions(static=shape, **options))
    assert not (tmp_path / "bundle").exists()
