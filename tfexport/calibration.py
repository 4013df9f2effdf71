"""Between which numbers the inputs of products lie, on text like that to come: steps of 8 bits that never change.

A step that is fixed beforehand needs no look at the row: fewer operators, and rows as independent as before. What lies
outside is cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tfexport.errors import ExportError
from tfexport.float_run import Array, FloatRun
from tfexport.passes.products import product_of
from tfexport.passes.quantise_int8 import ActivationRange
from tfexport_runtime.step_model import Target

TEXTS = 512  # lines of a text that are looked at, at most
BATCH = 32  # sentences at a time


def evenly_spaced(texts: Sequence[str]) -> list[str]:
    """At most TEXTS of those that are not blank, from the first to the last."""
    filled = [text for text in texts if text.strip()]
    count = min(TEXTS, len(filled))
    return [filled[i * len(filled) // count] for i in range(count)]


def activation_ranges(
    graphs: Mapping[str, ir.Model], target: Target, pad_id: int, sources: Sequence[Sequence[int]]
) -> dict[str, dict[str, ActivationRange]]:
    """By graph and name of a product's input: what the sources and their greedy translations make of it.

    graphs: in float32. Padding, and what is computed for a sentence that has ended, do not count.
    Raises ExportError without a source, and for an input that is not a number.
    """
    if not sources:
        raise ExportError("the text to calibrate with has no token; give some hundred lines like those to come")
    inputs = {
        name: {product.x.name for node in graph.graph if (product := product_of(node)) is not None}
        for name, graph in graphs.items()
    }
    seen: dict[str, dict[str, ActivationRange]] = {name: {} for name in graphs}

    def look(graph: str, name: str, array: Array, real: npt.NDArray[np.bool_]) -> None:
        if name in inputs[graph]:
            rows = array.reshape(len(real), -1)[real]
            lowest, highest = float(rows.min()), float(rows.max())
            if not np.isfinite([lowest, highest]).all():
                raise ExportError(f"{name} of the {graph} is not a number on the text to calibrate with")
            known = seen[graph].get(name, ActivationRange(0.0, 0.0))
            seen[graph][name] = ActivationRange(min(known.lowest, lowest), max(known.highest, highest))

    run = FloatRun(graphs, target, pad_id, lambda graph, value: value.name in inputs[graph], look)
    by_length = sorted(sources, key=len)
    for first in range(0, len(by_length), BATCH):
        batch = by_length[first : first + BATCH]
        run.translate(batch, most_generated=2 * len(batch[-1]) + 10)
    return seen
