"""The largest numbers that graphs in float32 compute: what half precision could not hold shows here.

Letters: B sentences, S source length, H heads, C capacity, D head size.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime

from tfexport.passes.half_precision import is_float
from tfexport.weights import write_shared_weights
from tfexport_runtime.graph_pair import padded
from tfexport_train.config import EncoderDecoderConfig

STEPS = 12
MASK = 1e8  # numbers from here on hide what must not be seen, and may become the largest half
_Arrays = dict[str, npt.NDArray[Any]]


def largest_magnitudes(
    graphs: Mapping[str, ir.Model], config: EncoderDecoderConfig, sources: Sequence[Sequence[int]]
) -> dict[str, dict[str, float]]:
    """By graph and name of the value, over the sources and the first steps of their greedy translations."""
    seen: dict[str, dict[str, float]] = {name: {} for name in graphs}
    with tempfile.TemporaryDirectory() as folder:
        encoder, decoder = (_session(name, graphs[name], Path(folder)) for name in ("encoder", "decoder"))
        ids, mask = padded(sources, config.pad_id)
        cross = _run(encoder, {"input_ids": ids, "attention_mask": mask}, seen["encoder"])
        tokens, past = np.full((len(ids), 1), config.start_id), _empty_cache(decoder, len(ids))
        for step in range(min(STEPS, config.max_positions)):
            inputs = {
                "input_ids": tokens,
                "past_lengths": np.full(len(ids), step, np.int32),
                "total_length": np.array([step + 1], np.int32),
                "encoder_attention_mask": mask,
                "logit_bias": np.zeros((1, config.target_vocab_size), np.float32),
                "num_candidates": np.array([1]),
                **past,
                **{_past(name): array for name, array in cross.items() if name.startswith("present.")},
            }
            outputs = _run(decoder, inputs, seen["decoder"])
            tokens = outputs["candidate_ids"]
            past = {_past(name): array for name, array in outputs.items() if name.startswith("present.")}
    return seen


def _session(name: str, graph: ir.Model, folder: Path) -> onnxruntime.InferenceSession:
    """The graph with every float value as an output."""
    model = graph.clone()
    given = {value.name for value in (*model.graph.outputs, *model.graph.inputs)}
    for node in model.graph:
        for value in node.outputs:
            if value.name not in given and is_float(value):
                value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), None
                model.graph.outputs.append(value)
    (folder / name).mkdir()
    write_shared_weights([model], folder / name)
    ir.save(model, folder / name / "graph.onnx")
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    path = str(folder / name / "graph.onnx")
    return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])


def _run(session: onnxruntime.InferenceSession, inputs: _Arrays, seen: dict[str, float]) -> _Arrays:
    names = [output.name for output in session.get_outputs()]
    wanted = {tensor.name for tensor in session.get_inputs()}
    outputs = dict(zip(names, session.run(names, {n: a for n, a in inputs.items() if n in wanted}), strict=True))
    for name, array in outputs.items():
        if array.dtype == np.float32:
            magnitudes = np.abs(array)
            seen[name] = float(magnitudes.max(where=magnitudes < MASK, initial=seen.get(name, 0.0)))
    return outputs


def _empty_cache(decoder: onnxruntime.InferenceSession, rows: int) -> _Arrays:
    """[rows, H, C, D] zeros in place, [rows, H, 0, D] growing."""
    in_place = any(tensor.name == "total_length" for tensor in decoder.get_inputs())
    length = STEPS if in_place else 0
    return {
        tensor.name: np.zeros((rows, tensor.shape[1], length, tensor.shape[3]), np.float32)
        for tensor in decoder.get_inputs()
        if tensor.name.startswith("past_key_values.") and ".decoder." in tensor.name
    }


def _past(name: str) -> str:
    return name.replace("present.", "past_key_values.")
