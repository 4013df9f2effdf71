"""Graphs against the PyTorch module: every form of model, both forms of graphs, shapes the tracer never saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import onnxruntime
import pytest
import torch

from tests.export.conftest import FORMS, make_checkpoint
from tfexport.verify import VerifyOptions, verify_bundle
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.session import SessionOptions, open_model
from tfexport_runtime.translator import Translator
from tfexport_train.checkpoint import Checkpoint

BundleOf = Callable[[str, str], Bundle]

# Every form is traced with fused operators; the standard ones are shown on those that differ most.
BUNDLES = [(form, "ort") for form in FORMS] + [(form, "portable") for form in ("paper", "annotated", "relative")]


@pytest.mark.parametrize(("form", "operators"), BUNDLES)
def test_logits_tokens_and_scores_equal_pytorch(form: str, operators: str, bundle_of: BundleOf) -> None:
    options = VerifyOptions(
        beam_sizes=(1, 3),
        shapes=((1, 1, 1), (1, 4, 7), (2, 1, 20), (5, 4, 33), (1, 20, 47)),
        steps=48,  # all positions that the model has
        seed=3,
    )
    report = verify_bundle(bundle_of(form, operators), make_checkpoint(form), options)
    assert report.passed, [row for row in report.rows if not row.ok]


@pytest.mark.parametrize("operators", ["ort", "portable"])
def test_a_sentence_does_not_depend_on_what_is_beside_it(operators: str, bundle_of: BundleOf) -> None:
    model = open_model(bundle_of("paper", operators), SessionOptions(threads=1))
    sources = [[5, 6, 7, 2], [9, 2], [11, 12, 13, 14, 15, 16, 17, 18, 2]]
    tokens = np.array([1, 1, 1])
    together, _ = model.step_logits(tokens, model.start(sources, 1))  # type: ignore[arg-type]
    for i, source in enumerate(sources):
        alone, _ = model.step_logits(tokens[:1], model.start([source], 1))  # type: ignore[arg-type]
        np.testing.assert_allclose(together[i], alone[0], atol=1e-5)


@pytest.mark.parametrize("form", ["paper", "relative"])
def test_rows_of_any_length_step_together_whatever_lies_behind_them(form: str, bundle_of: BundleOf) -> None:
    """The in-place graph called directly: lengths 11, 0 and 4 in buffers of 16 that are full of large numbers."""
    model, bundle = make_checkpoint(form).build_model(), bundle_of(form, "ort")
    session = onnxruntime.InferenceSession(bundle.folder / "decoder.onnx", providers=["CPUExecutionProvider"])
    source, lengths = torch.tensor([[5, 6, 7, 2]]), (11, 0, 4)
    _, heads, _, features = next(t.shape for t in session.get_inputs() if t.name == "past_key_values.0.decoder.key")
    past = [np.full((3, heads, 16, features), 1e4, np.float32) for _ in model.decoder_layers for _ in "kv"]
    expected = []
    for row, length in enumerate(lengths):
        cache = model.start(source, source != 0)
        for token in range(20, 20 + length):
            _, cache = model.step(torch.tensor([[token]]), cache)
        for buffer, used in zip(past, chain(*cache.self_attention), strict=True):
            buffer[row, :, :length] = 0  # features that only the graph has
            buffer[row, :, :length, : used.shape[3]] = used[0].detach().numpy()
        expected.append(model.step(torch.tensor([[9]]), cache)[0][0].detach().numpy())
    names = [f"past_key_values.{i}.decoder.{p}" for i in range(len(model.decoder_layers)) for p in ("key", "value")]
    cross = [t.detach().numpy() for t in chain(*cache.cross_attention)]
    inputs = {
        "input_ids": np.full((3, 1), 9),
        "past_lengths": np.array(lengths, np.int32),
        "total_length": np.array([12], np.int32),
        "encoder_attention_mask": np.ones((1, 4), np.int32),
        "logit_bias": np.zeros((1, len(expected[0])), np.float32),
        "num_candidates": np.array([1]),
        **dict(zip(names, past, strict=True)),
        **dict(zip([n.replace("decoder", "encoder") for n in names], cross, strict=True)),
    }
    (logits,) = session.run(["logits"], inputs)
    np.testing.assert_allclose(logits, np.stack(expected), atol=1e-4)


@pytest.mark.parametrize("operators", ["ort", "portable"])
def test_the_same_token_gives_other_logits_at_each_position(operators: str, bundle_of: BundleOf) -> None:
    model = open_model(bundle_of("paper", operators), SessionOptions(threads=1))
    cache, seen = model.start([[5, 6, 2]], 1), []
    for _ in range(10):
        logits, cache = model.step_logits(np.array([7]), cache)  # type: ignore[arg-type]
        seen.append(logits[0].copy())
    assert all(np.abs(a - b).max() > 1e-4 for a, b in pairwise(seen))


def test_candidates_are_the_best_of_the_biased_log_softmax(bundle_of: BundleOf) -> None:
    model = open_model(bundle_of("paper", "ort"), SessionOptions(threads=1))
    tokens, sources = np.array([1, 1]), [[5, 6, 2], [7, 2]]
    logits, _ = model.step_logits(tokens, model.start(sources, 1))  # type: ignore[arg-type]
    bias = np.zeros(logits.shape[1], np.float32)
    bias[logits[0].argmax()] = -np.inf
    candidates, _ = model.step(tokens, model.start(sources, 1), bias, 6)  # type: ignore[arg-type]
    expected = torch.log_softmax(torch.from_numpy(logits + bias), -1).topk(6)
    np.testing.assert_array_equal(candidates.ids, expected.indices.numpy())
    np.testing.assert_allclose(candidates.log_probs, expected.values.numpy(), atol=1e-5)


def test_a_norm_exchanged_for_its_near_equivalent_is_found(bundle_of: BundleOf) -> None:
    """nn.LayerNorm in place of the Annotated Transformer's norm: close at d_model 512, still wrong."""
    annotated = make_checkpoint("annotated")
    native = replace(annotated, config=annotated.config.with_changes({"norm": "layer_norm"}))
    report = verify_bundle(bundle_of("annotated", "ort"), native, VerifyOptions())
    assert not report.passed
    assert "encoder" in report.rows[0].where


def test_other_weights_are_found_and_located(bundle_of: BundleOf) -> None:
    checkpoint = make_checkpoint("paper")
    name = "decoder_layers.1.feed_forward.down.bias"
    one = torch.eye(1, len(checkpoint.weights[name]))[0]  # a shift of all features would vanish in the norm behind it
    changed = {**checkpoint.weights, name: checkpoint.weights[name] + 0.01 * one}
    report = verify_bundle(bundle_of("paper", "ort"), replace(checkpoint, weights=changed), VerifyOptions())
    failed = [row for row in report.rows if not row.ok]
    assert failed[0].name.startswith("decoder: logits")
    assert "step" in failed[0].where


def test_the_model_keeps_its_mode_and_dropout_stays_out(checkpoint_of: Callable[[str], Checkpoint]) -> None:
    from tfexport.graphs.trace import trace_decoder

    model = make_checkpoint("paper").build_model()
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    model(torch.tensor([[5, 6, 2]]), torch.tensor([[1, 7]]))  # an earlier forward pass leaves nothing behind
    graph = trace_decoder(model, in_place=True, opset=18)
    assert all(module.training for module in model.modules())
    assert not [n.op_type for n in graph.graph if "Dropout" in n.op_type or "Random" in n.op_type]


def test_golden_file_is_reproduced(bundle_of: BundleOf) -> None:
    import json

    for form in ("paper", "gelu"):
        bundle = bundle_of(form, "ort")
        translator = Translator(bundle.folder)
        for case in json.loads(bundle.read("golden.json"))["cases"]:
            options = translator.options({"truncate_source": True, **case["options"]})
            (translation,) = translator.translate([case["text"]], options)
            for ours, expected in zip(translation.hypotheses, case["hypotheses"], strict=True):
                assert (list(ours.ids), ours.text, ours.finish_reason) == (
                    expected["ids"],
                    expected["text"],
                    expected["finish_reason"],
                )
                assert ours.score == pytest.approx(expected["score"], abs=1e-4)
                assert ours.token_scores == pytest.approx(expected["token_scores"], abs=1e-4)
