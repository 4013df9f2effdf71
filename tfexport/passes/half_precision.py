"""The graph in half precision, but for what half precision cannot hold.

Half floats reach to 65504 with 11 bits. What stays in float32: the logits and all that follows from them, sums of
squares inside a norm, and nodes whose numbers were seen to be too large.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from tfexport.graphs.signature import in_half
from tfexport.passes.match import add_initializer, matrix, without_leftovers
from tfexport.passes.products import WeightFilter

LARGEST = 65504.0
_ROOM = 2.0  # other texts than those that were looked at may give numbers larger by this factor

# Sums over a row, powers and what undoes them: they lose or overflow in 11 bits.
_SENSITIVE = {"Pow", "ReduceMean", "ReduceSum", "ReduceSumSquare", "Sqrt", "Reciprocal", "LogSoftmax"}


def half_precision(
    model: ir.Model, keep_float: WeightFilter, largest: Mapping[str, float]
) -> tuple[ir.Model, tuple[str, ...]]:
    """Weights, activations and caches as float16.

    keep_float: products with these weights stay in float32. largest: magnitudes that were seen, by name of the value.
    Returns the model, and the weights whose products stay in float32 because their numbers are too large.
    """
    graph = model.graph
    too_large = {n: _overflowing(n, largest) for n in graph}
    in_float: set[ir.Node] = set()
    for node in graph:
        asked = any(matrix(v) is not None and keep_float(v) for v in node.inputs if v is not None)
        if asked or too_large[node] or node.op_type in _SENSITIVE or _follows_float(node, in_float):
            in_float.add(node)
    halves = _Halves(graph, in_float)
    for node in list(graph):
        halves.convert(node)
    halves.convert_interface()
    named = {
        v.name or "" for n in graph if too_large.get(n) for v in n.inputs if matrix(v) is not None and v is not None
    }
    return without_leftovers(model), tuple(sorted(named))


def _overflowing(node: ir.Node, largest: Mapping[str, float]) -> bool:
    values = [v for v in (*node.inputs, *node.outputs) if v is not None and not v.is_initializer()]
    seen = any(largest.get(v.name or "", 0.0) * _ROOM > LARGEST for v in values)
    weights = [matrix(v) for v in node.inputs]
    return seen or any(
        w is not None and w.dtype == ir.DataType.FLOAT and np.abs(w.numpy()).max() > LARGEST for w in weights
    )


def _follows_float(node: ir.Node, in_float: set[ir.Node]) -> bool:
    """What is computed from float32 alone goes on in float32, up to the next product with a weight."""
    if any(matrix(v) is not None for v in node.inputs):
        return False
    sources = [v for v in node.inputs if v is not None and not v.is_initializer() and is_float(v)]
    return bool(sources) and all(_given_in_float(v) or v.producer() in in_float for v in sources)


def _given_in_float(value: ir.Value) -> bool:
    return (value.is_graph_input() or value.is_graph_output()) and not in_half(value.name or "")


def is_float(value: ir.Value) -> bool:
    """float32; where a pass left no type, that of the node's first input."""
    if value.dtype is not None:
        return value.dtype == ir.DataType.FLOAT
    producer = value.producer()
    return producer is not None and producer.inputs[0] is not None and is_float(producer.inputs[0])


class _Halves:
    """Every float32 value and its half, made where a node first needs it. Types are asked before any is changed."""

    def __init__(self, graph: ir.Graph, in_float: set[ir.Node]) -> None:
        self._graph, self._in_float = graph, in_float
        self._floats = {v for n in graph for v in (*n.inputs, *n.outputs) if v is not None and is_float(v)}
        self._half_inputs = {v for v in graph.inputs if v in self._floats and in_half(v.name or "")}
        self._casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def convert(self, node: ir.Node) -> None:
        wanted = ir.DataType.FLOAT if node in self._in_float else ir.DataType.FLOAT16
        for place, value in enumerate(node.inputs):
            if value is not None and value in self._floats and self._type(value) != wanted:
                node.replace_input_with(place, self._as(value, wanted, node))
        if wanted == ir.DataType.FLOAT:
            return
        if node.op_type == "Cast" and node.attributes["to"].as_int() == ir.DataType.FLOAT:
            node.attributes["to"] = ir.AttrInt64("to", ir.DataType.FLOAT16)
        for output in node.outputs:
            if output in self._floats:
                output.dtype = wanted
                if _given_in_float(output):
                    self._give_in_float(node, output)

    def convert_interface(self) -> None:
        for value in self._half_inputs:
            value.dtype = ir.DataType.FLOAT16
        for place, value in enumerate(self._graph.outputs):
            if value in self._floats and in_half(value.name or "") and self._type(value) == ir.DataType.FLOAT:
                producer, name = value.producer(), value.name
                assert producer is not None
                value.name = f"{name}.float"
                cast = ir.node("Cast", [value], {"to": ir.DataType.FLOAT16})
                self._graph.insert_after(producer, cast)
                cast.outputs[0].name, cast.outputs[0].shape = name, value.shape
                cast.outputs[0].dtype = ir.DataType.FLOAT16
                self._graph.outputs[place] = cast.outputs[0]

    def _type(self, value: ir.Value) -> ir.DataType:
        if value.is_initializer() or (value.is_graph_input() and value not in self._half_inputs):
            return ir.DataType.FLOAT
        producer = value.producer()
        return ir.DataType.FLOAT if producer in self._in_float else ir.DataType.FLOAT16

    def _as(self, value: ir.Value, dtype: ir.DataType, before: ir.Node) -> ir.Value:
        if (value, dtype) not in self._casts:
            self._casts[value, dtype] = self._initializer(value) if value.is_initializer() else self._cast(value, dtype)
        return self._casts[value, dtype]

    def _initializer(self, value: ir.Value) -> ir.Value:
        assert value.const_value is not None
        array = np.clip(value.const_value.numpy(), -LARGEST, LARGEST)  # masks of -1e9 stay finite
        return add_initializer(self._graph, f"{value.name}.half", array.astype(np.float16))

    def _cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        cast = ir.node("Cast", [value], {"to": dtype})
        cast.outputs[0].dtype, cast.outputs[0].shape = dtype, value.shape
        producer = value.producer()
        if producer is not None:
            self._graph.insert_after(producer, cast)
        else:
            self._graph.insert_before(self._graph[0], cast)
        return cast.outputs[0]

    def _give_in_float(self, node: ir.Node, output: ir.Value) -> None:
        """The node goes on in half; what leaves it under this name is float32."""
        name = output.name
        output.name = f"{name}.half"
        cast = ir.node("Cast", [output], {"to": ir.DataType.FLOAT})
        given = cast.outputs[0]
        given.name, given.shape, given.dtype = name, output.shape, ir.DataType.FLOAT
        self._graph.insert_after(node, cast)
        self._floats.add(given)
        self._in_float.add(cast)
        ir.convenience.replace_all_uses_with(output, given, replace_graph_outputs=True)
        cast.replace_input_with(0, output)
