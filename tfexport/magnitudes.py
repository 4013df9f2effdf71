"""The largest numbers that graphs in float32 compute: what half precision could not hold shows here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tfexport.float_run import Array, FloatRun
from tfexport.passes.half_precision import is_float
from tfexport_runtime.step_model import Target

STEPS = 12
MASK = 1e8  # numbers from here on hide what must not be seen, and may become the largest half


def largest_magnitudes(
    graphs: Mapping[str, ir.Model], target: Target, pad_id: int, sources: Sequence[Sequence[int]]
) -> dict[str, dict[str, float]]:
    """By graph and name of the value, over the sources and the first steps of their greedy translations."""
    seen: dict[str, dict[str, float]] = {name: {} for name in graphs}

    def look(graph: str, name: str, array: Array, real: npt.NDArray[np.bool_]) -> None:
        magnitudes, before = np.abs(array), seen[graph].get(name, 0.0)
        seen[graph][name] = float(magnitudes.max(where=magnitudes < MASK, initial=before))

    FloatRun(graphs, target, pad_id, lambda graph, value: is_float(value), look).translate(sources, STEPS)
    return seen
