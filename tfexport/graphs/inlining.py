"""A traced graph as a part of another one: its nodes move over, its inputs become values that are there already."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import onnx_ir as ir


def take_apart(graph: ir.Graph, inputs: Mapping[str, ir.Value]) -> tuple[list[ir.Node], dict[str, ir.Value]]:
    """The nodes of a graph, reading `inputs` in the place of its own, and its outputs by name. It is left empty."""
    for value in graph.inputs:
        ir.convenience.replace_all_uses_with(value, inputs[value.name or ""])
    outputs = {value.name or "": value for value in graph.outputs}
    nodes = list(graph)
    graph.outputs.clear()
    graph.inputs.clear()
    graph.remove(nodes)
    return nodes, outputs


def move_weights(source: ir.Graph, target: ir.Graph, prefix: str) -> None:
    """The initializers of one graph into another, named with a prefix. What is there with the same content is used."""
    present = {_content(value): value for value in target.initializers.values()}
    values = list(source.initializers.values())
    source.initializers.clear()
    for value in values:
        twin = present.setdefault(_content(value), value)
        if twin is value:
            value.name = f"{prefix}{value.name}"
            target.register_initializer(value)
        else:
            ir.convenience.replace_all_uses_with(value, twin)


def _content(value: ir.Value) -> tuple[object, ...]:
    tensor = value.const_value
    assert tensor is not None, value.name
    return tensor.dtype, tuple(tensor.shape), hashlib.sha256(tensor.tobytes()).digest()


def split_by_dependence(nodes: Sequence[ir.Node], changing: Sequence[ir.Value]) -> tuple[list[ir.Node], list[ir.Node]]:
    """The nodes that depend on none of the values, and the others; both in order.

    What does not change from one iteration of a loop to the next is computed once, before the loop.
    """
    dependent = set(changing)
    fixed, varying = [], []
    for node in nodes:
        if dependent.isdisjoint(value for value in node.inputs if value is not None):
            fixed.append(node)
        else:
            varying.append(node)
            dependent.update(node.outputs)
    return fixed, varying
