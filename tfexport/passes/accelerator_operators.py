"""What accelerators of phones do not have, in what they have: a sum, a reciprocal, a whole LayerNormalization.

ONNX Runtime would put a LayerNormalization together again before it gives nodes away, but for the square that is a
product here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from tfexport.passes.match import add_initializer, without_leftovers


def accelerator_operators(model: ir.Model) -> tuple[ir.Model, bool]:
    """Rewrites what NNAPI would leave to the processor. Returns the model, and whether anything was changed."""
    constants = _Constants(model.graph)
    modified = False
    for node in list(model.graph):
        rewrite = _REWRITES.get(node.op_type) if not node.domain else None
        if rewrite is None or not (nodes := rewrite(node, constants)):
            continue
        result, replaced = nodes[-1].outputs[0], node.outputs[0]
        result.name, result.shape, result.type = replaced.name, replaced.shape, replaced.type
        ir.convenience.replace_nodes_and_values(model.graph, node, [node], nodes, [replaced], [result])
        modified = True
    return without_leftovers(model), modified


class _Constants:
    """Small initializers, each once."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._values: dict[str, ir.Value] = {}
        self.last_axis = self._value("axis.last", np.array([-1]))

    def number(self, number: float) -> ir.Value:
        return self._value(f"number.{number:.9g}", np.array(number, np.float32))

    def _value(self, name: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> ir.Value:
        if name not in self._values:
            self._values[name] = add_initializer(self._graph, name, array)
        return self._values[name]


def _layer_norm(norm: ir.Node, constants: _Constants) -> list[ir.Node]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the last axis."""
    if norm.attributes.get_int("axis", -1) != -1 or len(norm.outputs) != 1:
        return []
    x, scale, *bias = norm.inputs
    mean = ir.node("ReduceMean", [x, constants.last_axis])
    centred = ir.node("Sub", [x, mean.outputs[0]])
    squared = ir.node("Mul", [centred.outputs[0], centred.outputs[0]])
    variance = ir.node("ReduceMean", [squared.outputs[0], constants.last_axis])
    epsilon = constants.number(norm.attributes.get_float("epsilon", 1e-5))
    shifted = ir.node("Add", [variance.outputs[0], epsilon])
    deviation = ir.node("Sqrt", [shifted.outputs[0]])
    normed = ir.node("Div", [centred.outputs[0], deviation.outputs[0]])
    scaled = ir.node("Mul", [normed.outputs[0], scale])
    nodes = [mean, centred, squared, variance, shifted, deviation, normed, scaled]
    return [*nodes, ir.node("Add", [scaled.outputs[0], bias[0]])] if bias and bias[0] is not None else nodes


def _reciprocal(node: ir.Node, constants: _Constants) -> list[ir.Node]:
    return [ir.node("Div", [constants.number(1.0), node.inputs[0]])]


def _sum(node: ir.Node, constants: _Constants) -> list[ir.Node]:
    """Over one axis whose length is known: the mean times the length."""
    x, axes = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    tensor = axes.const_value if axes is not None else None
    if x is None or x.shape is None or tensor is None or tensor.size != 1:
        return []
    length = x.shape[int(tensor.numpy().reshape(-1)[0])]
    if not isinstance(length, int):
        return []
    mean = ir.node("ReduceMean", [x, axes], {"keepdims": node.attributes.get_int("keepdims", 1)})
    return [mean, ir.node("Mul", [mean.outputs[0], constants.number(float(length))])]


_REWRITES: dict[str, Callable[[ir.Node, _Constants], list[ir.Node]]] = {
    "LayerNormalization": _layer_norm,
    "Reciprocal": _reciprocal,
    "ReduceSum": _sum,
}
