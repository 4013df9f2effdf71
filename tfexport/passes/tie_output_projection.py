"""A tied embedding is stored once: the projection reads the look-up table itself, transposed while multiplying."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tfexport.passes.match import without_leftovers


def tie_output_projection(model: ir.Model) -> tuple[ir.Model, bool]:
    """MatMul(x, E transposed) with a table E of the same graph becomes Gemm(x, E, transB=1), where x has two axes.

    The tracer folds the transpose into a second copy of the table, which is the largest weight of most models.
    Returns the model, and whether anything was changed.
    """
    modified = False
    for node in list(model.graph):
        if node.op_type != "MatMul" or node.domain:
            continue
        x, weight = node.inputs
        table = _transposed_twin(weight, model.graph) if weight is not None else None
        if x is None or x.shape is None or len(x.shape) != 2 or table is None:
            continue
        gemm = ir.node("Gemm", [x, table], {"transB": 1}, num_outputs=1)
        product, replaced = gemm.outputs[0], node.outputs[0]
        product.name, product.shape, product.type = replaced.name, replaced.shape, replaced.type
        ir.convenience.replace_nodes_and_values(model.graph, node, [node], [gemm], node.outputs, gemm.outputs)
        modified = True
    return without_leftovers(model), modified


def _transposed_twin(weight: ir.Value, graph: ir.Graph) -> ir.Value | None:
    """The initializer of the graph whose transpose this one is."""
    if not weight.is_initializer() or weight.const_value is None or len(weight.const_value.shape) != 2:
        return None
    values = weight.const_value.numpy()
    for other in graph.initializers.values():
        tensor = other.const_value
        if other is weight or tensor is None or tensor.dtype != weight.const_value.dtype:
            continue
        if tuple(tensor.shape) == values.shape[::-1] and _is_transposed(tensor.numpy(), values):
            return other
    return None


def _is_transposed(array: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Almost all that differ do so in the first row already."""
    return np.array_equal(array[:, 0], other[0]) and np.array_equal(array.T, other)
