"""Graphs in float32, run as greedy search runs them, with a look at the values inside.

Letters: B sentences, S source length, H heads, C capacity, D head size.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime

from tfexport.weights import write_shared_weights
from tfexport_runtime.graph_pair import padded
from tfexport_runtime.step_model import Target

Array = npt.NDArray[Any]
_Arrays = dict[str, Array]

Look = Callable[[str, str, Array, npt.NDArray[np.bool_]], None]
"""Gets the graph, the name of a value, the value, and which rows are real: of the encoder [B * S], tokens that are no
padding; of the decoder [B], sentences that have not ended."""


class FloatRun:
    """Both graphs, with the values that are wanted as further outputs."""

    def __init__(
        self,
        graphs: Mapping[str, ir.Model],
        target: Target,
        pad_id: int,
        is_wanted: Callable[[str, ir.Value], bool],
        look: Look,
    ) -> None:
        """is_wanted: of a graph's float value. look: called with each of them, and each output, at every step."""
        self._target, self._pad_id, self._look = target, pad_id, look
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Windows keeps what is mapped
            self._encoder, self._decoder = (
                _session(name, graphs[name], is_wanted, Path(folder)) for name in ("encoder", "decoder")
            )

    def translate(self, sources: Sequence[Sequence[int]], most_generated: int) -> None:
        """Greedy search behind the target's prefix, until every sentence has ended or the steps are done."""
        target, (ids, mask) = self._target, padded(sources, self._pad_id)
        cross = self._run("encoder", {"input_ids": ids, "attention_mask": mask}, mask.ravel() == 1)
        steps = min(len(target.prefix_ids) + most_generated, target.max_length)
        bias = np.zeros((1, target.vocab_size), np.float32)
        bias[0, list(target.never_generated)] = -np.inf
        tokens, past = np.full((len(ids), 1), target.start_id), _empty_cache(self._decoder, len(ids), steps)
        alive = np.ones(len(ids), np.bool_)
        for step in range(steps):
            inputs = {
                "input_ids": tokens,
                "past_lengths": np.full(len(ids), step, np.int32),
                "total_length": np.array([step + 1], np.int32),
                "encoder_attention_mask": mask,
                "logit_bias": bias,
                "num_candidates": np.array([1]),
                **past,
                **{_past(name): array for name, array in cross.items() if name.startswith("present.")},
            }
            outputs = self._run("decoder", inputs, alive)
            past = {_past(name): array for name, array in outputs.items() if name.startswith("present.")}
            if step < len(target.prefix_ids):  # which may hold `eos`
                tokens = np.full_like(tokens, target.prefix_ids[step])
                continue
            tokens = outputs["candidate_ids"]
            alive &= tokens[:, 0] != target.eos_id
            if not alive.any():
                break

    def _run(self, graph: str, inputs: _Arrays, real: npt.NDArray[np.bool_]) -> _Arrays:
        session = self._encoder if graph == "encoder" else self._decoder
        names = [output.name for output in session.get_outputs()]
        wanted = {tensor.name for tensor in session.get_inputs()}
        outputs = dict(zip(names, session.run(names, {n: a for n, a in inputs.items() if n in wanted}), strict=True))
        for name, array in outputs.items():
            if array.dtype == np.float32:
                self._look(graph, name, array, real)
        return outputs


def _session(
    name: str, graph: ir.Model, is_wanted: Callable[[str, ir.Value], bool], folder: Path
) -> onnxruntime.InferenceSession:
    """Not optimised: every value is there under its name."""
    model = graph.clone()
    given = {value.name for value in (*model.graph.outputs, *model.graph.inputs)}
    for node in model.graph:
        for value in node.outputs:
            if value.name not in given and is_wanted(name, value):
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


def _empty_cache(decoder: onnxruntime.InferenceSession, rows: int, steps: int) -> _Arrays:
    """[rows, H, C, D] zeros in place, [rows, H, 0, D] growing."""
    in_place = any(tensor.name == "total_length" for tensor in decoder.get_inputs())
    length = steps if in_place else 0
    return {
        tensor.name: np.zeros((rows, tensor.shape[1], length, tensor.shape[3]), np.float32)
        for tensor in decoder.get_inputs()
        if tensor.name.startswith("past_key_values.") and ".decoder." in tensor.name
    }


def _past(name: str) -> str:
    return name.replace("present.", "past_key_values.")
