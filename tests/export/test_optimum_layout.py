"""Optimum's layout: file, input and output names as its libraries want them, and the numbers of the original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import load_file

from tests.checkpoints.optimum_folder import ORIGINALS, optimum_folder
from tfexport.errors import ExportError
from tfexport.layouts.optimum import OptimumOptions, export_optimum
from tfexport_train.checkpoint import Checkpoint

ORIGINAL = ORIGINALS / "t5-2-2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return optimum_folder(tmp_path_factory, "t5-2-2")


def session(folder: Path, name: str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(folder / "onnx" / name, providers=["CPUExecutionProvider"])


def cache_names(prefix: str) -> list[str]:
    return [
        f"{prefix}.{i}.{side}.{part}" for i in range(2) for side in ("decoder", "encoder") for part in ("key", "value")
    ]


def test_names_are_those_of_optimum(folder: Path) -> None:
    encoder, decoder = session(folder, "encoder_model.onnx"), session(folder, "decoder_model_merged.onnx")
    assert [i.name for i in encoder.get_inputs()] == ["input_ids", "attention_mask"]
    assert [o.name for o in encoder.get_outputs()] == ["last_hidden_state"]
    first = ["encoder_attention_mask", "input_ids", "encoder_hidden_states"]
    assert [i.name for i in decoder.get_inputs()] == [*first, *cache_names("past_key_values"), "use_cache_branch"]
    assert [o.name for o in decoder.get_outputs()] == ["logits", *cache_names("present")]
    copied = {file.name for file in folder.iterdir()}
    assert {"onnx", "config.json", "generation_config.json", "tokenizer_config.json", "spiece.model"} <= copied
    assert not [name for name in copied if name.endswith((".safetensors", ".bin", ".tmp"))]


def test_logits_are_those_of_the_original_in_one_call_and_in_steps(folder: Path) -> None:
    expected = json.loads((ORIGINAL / "expected.json").read_text(encoding="utf-8"))
    wanted = load_file(ORIGINAL / "expected.safetensors")["logits"]
    sources, tokens = expected["source_ids"], np.array(expected["decoder_ids"])
    width = max(map(len, sources))
    ids = np.array([[*s, *[0] * (width - len(s))] for s in sources])
    mask = np.array([[int(i < len(s)) for i in range(width)] for s in sources])
    (hidden,) = session(folder, "encoder_model.onnx").run(None, {"input_ids": ids, "attention_mask": mask})
    decoder = session(folder, "decoder_model_merged.onnx")

    def call(tokens: np.ndarray[Any, Any], past: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        empty = {name: np.zeros((len(sources), 2, 0, 4), np.float32) for name in cache_names("past_key_values")}
        inputs = {"encoder_attention_mask": mask, "input_ids": tokens, "encoder_hidden_states": hidden}
        cached = {**(past or empty), "use_cache_branch": np.array([past is not None])}
        logits, *present = decoder.run(None, {**inputs, **cached})
        return logits, dict(zip(cache_names("past_key_values"), present, strict=True))

    whole, _ = call(tokens, None)
    np.testing.assert_allclose(whole, wanted, atol=1e-4)
    steps, past = call(tokens[:, :1], None)
    for t in range(1, tokens.shape[1]):
        logits, past = call(tokens[:, t : t + 1], past)
        steps = np.concatenate([steps, logits], axis=1)
    np.testing.assert_allclose(steps, wanted, atol=1e-4)


def test_other_checkpoints_have_no_such_layout(tiny_checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="not a Hugging Face folder"):
        export_optimum(tmp_path, tiny_checkpoint, tmp_path / "out", OptimumOptions())
