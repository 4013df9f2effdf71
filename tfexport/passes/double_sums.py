"""Sums, roots and transcendental functions in float64, each rounded to float32 once: the same float32 everywhere.

Kernels of different processors add up in different order and approximate exp differently. In float64 that moves a
result by 1e-16 of it, and it rounds to another float32 once in a hundred million times or so. What IEEE 754 rounds
exactly, such as the sum of two numbers, is the same float32 everywhere as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from tfexport.passes.match import add_initializer, constant
from tfexport.passes.products import product_of
from tfexport.passes.written_attention import MICROSOFT

_Places = tuple[int, ...]
"""Inputs that hold numbers; the others are shapes, axes and conditions."""

_ROUGH: Mapping[str, _Places] = {
    "MatMul": (0, 1),
    "FusedMatMul": (0, 1),
    "LayerNormalization": (0, 1, 2),
    "ReduceMean": (0,),
    "ReduceSum": (0,),
    "Softmax": (0,),
    "Exp": (0,),
    "Tanh": (0,),
    "Sigmoid": (0,),
    "Pow": (0, 1),
    "Sqrt": (0,),  # this one and the next by an approximation on some processors
    "Reciprocal": (0,),
}
_EXACT: Mapping[str, _Places] = {
    "Add": (0, 1),
    "Sub": (0, 1),
    "Mul": (0, 1),
    "Div": (0, 1),
    "Neg": (0,),
    "Where": (1, 2),
    "Reshape": (0,),
    "Transpose": (0,),
}
# They stay as they are: exact, or sums of integers, which are; LogSoftmax decides nothing but scores.
_LEFT_ALONE = frozenset(
    {
        "Abs", "Cast", "Clip", "Concat", "Equal", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
        "Identity", "LessOrEqual", "LogSoftmax", "MatMulIntegerToFloat", "Max", "Min", "Pad", "QGemm", "QuantizeLinear",
        "Range", "ReduceMax", "ReduceMin", "Relu", "ScatterND", "Shape", "Sign", "Slice", "Split", "Squeeze", "TopK",
        "Unsqueeze",
    }
)  # fmt: skip


def double_sums(model: ir.Model) -> tuple[ir.Model, bool]:
    """Products with a constant matrix stay: they are for `quantise_int8`.

    Operators that float64 lacks must be written out before. Returns the model, and whether anything was changed.
    """
    nodes = _in_double(model.graph)
    casts = _Casts(model.graph, nodes)
    for node in nodes:
        casts.widen(node)
    for node in nodes:
        casts.narrow(node.outputs[0])
    return model, bool(nodes)


def rough_operators(model: ir.Model) -> list[str]:
    """Of the operators that are not computed in float64, those whose last bits may differ between processors."""
    return [
        node.op_type
        for node in model.graph
        if node.op_type not in _EXACT
        and node.op_type not in _LEFT_ALONE
        and node.outputs[0].dtype != ir.DataType.DOUBLE
    ]


def _in_double(graph: ir.Graph) -> dict[ir.Node, _Places]:
    """In the order of the graph. What is exact goes on in float64 where all that it reads is there already."""
    nodes: dict[ir.Node, _Places] = {}
    for node in graph:
        rough, exact = _ROUGH.get(node.op_type), _EXACT.get(node.op_type)
        if node.domain not in ("", MICROSOFT):
            continue
        if rough is not None and product_of(node) is None:
            nodes[node] = rough
        elif exact is not None:
            made = [value for place in exact if constant(value := node.inputs[place]) is None]
            if made and all(value is not None and value.producer() in nodes for value in made):
                nodes[node] = exact
    return nodes


class _Casts:
    """Between the two types; each value is cast once."""

    def __init__(self, graph: ir.Graph, nodes: Mapping[ir.Node, _Places]) -> None:
        self._graph, self._nodes = graph, nodes
        self._wide: dict[ir.Value, ir.Value] = {}

    def widen(self, node: ir.Node) -> None:
        for place in self._nodes[node]:
            value = node.inputs[place] if place < len(node.inputs) else None
            if value is not None and value.producer() not in self._nodes:
                node.replace_input_with(place, self._in_double(node, value))
        node.outputs[0].type = ir.TensorType(ir.DataType.DOUBLE)
        if node.op_type == "LayerNormalization":
            node.attributes["stash_type"] = ir.AttrInt64("stash_type", ir.DataType.DOUBLE)

    def narrow(self, value: ir.Value) -> None:
        """Everything else reads it as float32, under its name."""
        outside = [use for use in value.uses() if use.node not in self._nodes]
        if not outside and not value.is_graph_output():
            return
        node, cast = value.producer(), ir.node("Cast", [value], {"to": ir.DataType.FLOAT})
        assert node is not None
        single = cast.outputs[0]
        single.name, single.shape, single.type = value.name, value.shape, ir.TensorType(ir.DataType.FLOAT)
        value.name = f"{value.name}.double"
        self._graph.insert_after(node, [cast])
        for use in outside:
            use.node.replace_input_with(use.idx, single)
        for place, output in enumerate(self._graph.outputs):
            if output is value:
                self._graph.outputs[place] = single

    def _in_double(self, before: ir.Node, value: ir.Value) -> ir.Value:
        if value not in self._wide:
            tensor = constant(value)
            if tensor is not None:
                array = tensor.numpy().astype(np.float64)
                self._wide[value] = add_initializer(self._graph, f"{value.name}.double", array)
            else:
                cast = ir.node("Cast", [value], {"to": ir.DataType.DOUBLE})
                cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(ir.DataType.DOUBLE), value.shape
                self._graph.insert_before(before, [cast])
                self._wide[value] = cast.outputs[0]
        return self._wide[value]
