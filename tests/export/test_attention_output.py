"""The weights of the last cross-attention, against PyTorch's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch

from tfexport.passes.attention_output import ATTENTION_OUTPUT, attention_output
from tfexport_runtime.bundle import read_bundle
from tfexport_runtime.session import SessionOptions, open_model
from tfexport_train.checkpoint import Checkpoint

SOURCES = [[5, 9, 17, 2], [6, 2]]


def test_the_first_step_of_every_beam_looks_where_pytorch_looks(
    tiny_checkpoint: Checkpoint, tiny_bundle: Path, tmp_path: Path
) -> None:
    heads, beams = tiny_checkpoint.config.num_heads, 2
    decoder = attention_output(ir.load(tiny_bundle / "decoder.onnx"), heads)
    ir.save(decoder, tmp_path / "decoder.onnx", external_data="weights.bin")
    session = onnxruntime.InferenceSession(str(tmp_path / "decoder.onnx"), providers=["CPUExecutionProvider"])
    cache = open_model(read_bundle(tiny_bundle), SessionOptions(threads=1)).start(SOURCES, beams)
    start = tiny_checkpoint.config.start_id
    inputs = {
        "input_ids": np.full((len(SOURCES) * beams, 1), start),
        "past_lengths": cache.lengths,
        "total_length": np.ones(1, np.int32),
        "encoder_attention_mask": cache.memory.mask,
        "logit_bias": np.zeros((1, tiny_checkpoint.config.target_vocab_size), np.float32),
        "num_candidates": np.array([1]),
        **{f"past_key_values.0.decoder.{part}": cache.layer(i) for i, part in enumerate(("key", "value"))},
        **{f"past_key_values.0.encoder.{part}": cache.memory.cross[i] for i, part in enumerate(("key", "value"))},
    }
    (weights,) = session.run([ATTENTION_OUTPUT], inputs)
    assert weights.shape == (len(SOURCES) * beams, heads, max(map(len, SOURCES)))
    padded = torch.tensor([[*s, *[tiny_checkpoint.config.pad_id] * (4 - len(s))] for s in SOURCES])
    expected = tiny_checkpoint.build_model().attention_weights(padded, torch.full((2, 1), start)).cross[-1][:, :, 0]
    np.testing.assert_allclose(weights, expected.detach().repeat_interleave(beams, 0).numpy(), atol=1e-6)
