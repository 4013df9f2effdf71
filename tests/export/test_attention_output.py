"""The weights of cross-attentions, against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from tests.export.conftest import make_checkpoint
from tfexport.errors import ExportError
from tfexport.passes.attention_output import ATTENTION_OUTPUT, AttentionChoice, attention_output, attention_signatures
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.session import SessionOptions, open_model

BundleOf = Callable[[str, str], Bundle]
SOURCES = [[5, 9, 17, 2], [6, 2]]
BEAMS = 2
CONFIG = make_checkpoint("paper").config  # 2 decoder layers of 4 heads


def expected_weights(layer: int) -> npt.NDArray[np.float32]:
    """What the start token looks at, for every beam of the sources: [R, H, S]."""
    padded = torch.tensor([[*s, *[CONFIG.pad_id] * (4 - len(s))] for s in SOURCES])
    start = torch.full((len(SOURCES), 1), CONFIG.start_id)
    weights = make_checkpoint("paper").build_model().attention_weights(padded, start).cross[layer][:, :, 0]
    return weights.detach().repeat_interleave(BEAMS, 0).numpy()


def first_step(bundle: Bundle, decoder: ir.Model, outputs: list[str]) -> list[npt.NDArray[Any]]:
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry("session.model_external_initializers_file_folder_path", str(bundle.folder))
    proto = ir.to_proto(decoder).SerializeToString()
    session = onnxruntime.InferenceSession(proto, settings, providers=["CPUExecutionProvider"])
    cache = open_model(bundle, SessionOptions(threads=1)).start(SOURCES, BEAMS)
    rows, layers = len(SOURCES) * BEAMS, range(2 * CONFIG.num_decoder_layers)
    names = [f"past_key_values.{i // 2}.{{}}.{'value' if i % 2 else 'key'}" for i in layers]
    in_place = bundle.manifest.cache.form == "in_place"
    past = [cache.layer(i) for i in layers] if in_place else cache.layers  # type: ignore[union-attr]
    inputs = {
        "input_ids": np.full((rows, 1), CONFIG.start_id),
        "past_lengths": cache.lengths,
        **({"total_length": np.ones(1, np.int32)} if in_place else {}),
        "encoder_attention_mask": cache.memory.mask,
        "logit_bias": np.zeros((1, CONFIG.target_vocab_size), np.float32),
        "num_candidates": np.array([1]),
        **{name.format("decoder"): array for name, array in zip(names, past, strict=True)},
        **{name.format("encoder"): array for name, array in zip(names, cache.memory.cross, strict=True)},
    }
    return session.run(outputs, inputs)


@pytest.mark.parametrize("operators", ["ort", "portable"])
def test_chosen_layers_and_heads_look_where_pytorch_looks(operators: str, bundle_of: BundleOf) -> None:
    bundle, choice = bundle_of("paper", operators), AttentionChoice(layers=(1, 0), heads=(2, 0))
    decoder = attention_output(ir.load(bundle.path("decoder.onnx")), CONFIG, choice)
    last, first = first_step(bundle, decoder, ["cross_attention.1", "cross_attention.0"])
    np.testing.assert_allclose(last, expected_weights(1)[:, [2, 0]], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(first, expected_weights(0)[:, [2, 0]], rtol=1e-5, atol=1e-6)
    assert [s.name for s in attention_signatures(CONFIG, choice)] == ["cross_attention.1", "cross_attention.0"]


def test_without_a_choice_it_is_the_last_layer_with_all_heads(bundle_of: BundleOf) -> None:
    bundle = bundle_of("paper", "ort")
    decoder = attention_output(ir.load(bundle.path("decoder.onnx")), CONFIG, AttentionChoice())
    (weights,) = first_step(bundle, decoder, [ATTENTION_OUTPUT])
    np.testing.assert_allclose(weights, expected_weights(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("choice", "wanted", "words"),
    [
        (AttentionChoice(layers=(2,)), True, "no decoder layer 2 to give the attention of; choose from 0 to 1"),
        (AttentionChoice(heads=(-1,)), True, "no decoder head -1"),
        (AttentionChoice(layers=(1, 1)), True, "twice"),
        (AttentionChoice(layers=(1,)), False, "add --with attention"),
    ],
)
def test_what_the_model_does_not_have_is_refused(choice: AttentionChoice, wanted: bool, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        choice.check(CONFIG, wanted)
