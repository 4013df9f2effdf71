"""Small questions that every pass asks of a graph."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass


def is_op(value: ir.Value | None, op_type: str, domain: str = "") -> bool:
    """True if the value is the first output of such a node."""
    node = value.producer() if value is not None else None
    return node is not None and node.op_type == op_type and node.domain == domain and node.outputs[0] is value


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The value's tensor if it is an initializer."""
    return value.const_value if value is not None and value.is_initializer() else None


def matrix(value: ir.Value | None) -> ir.TensorProtocol | None:
    """As `constant`, if it has two axes."""
    tensor = constant(value)
    return tensor if tensor is not None and len(tensor.shape) == 2 else None


def vector(value: ir.Value | None) -> ir.TensorProtocol | None:
    """As `constant`, if it has one axis."""
    tensor = constant(value)
    return tensor if tensor is not None and len(tensor.shape) == 1 else None


def only_use(value: ir.Value) -> ir.Node | None:
    """The single node that reads the value, if nothing else does and it is no output of the graph."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def add_initializer(graph: ir.Graph, name: str, array: npt.NDArray[Any]) -> ir.Value:
    """A new initializer of that name; the same name must not be taken."""
    assert name not in graph.initializers, name
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value


def without_leftovers(model: ir.Model) -> ir.Model:
    """Without nodes and initializers that nothing reads."""
    return RemoveUnusedNodesPass()(model).model
