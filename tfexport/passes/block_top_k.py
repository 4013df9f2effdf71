"""The best of a whole vocabulary, found among the best of its blocks: looking for the largest of a block is fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir.tape import Tape

from tfexport.passes.match import add_initializer

SMALLEST = 1024  # a shorter row is searched as it is
_BLOCKS = sorted(range(32, 257), key=lambda size: abs(size - 128))  # measured: about 128 is best, and not by much


def block_top_k(model: ir.Model) -> tuple[ir.Model, bool]:
    """TopK(x, k) of x [R, V] becomes TopK within the k blocks of a row whose maxima are largest.

    Nothing better lies in another block, for k values as good are in these. Of equals TopK takes the first, so
    blocks are looked at in the order of the row. The same values and ids; V is a number, k may vary.
    Returns the model, and whether anything was changed.
    """
    modified = False
    for node in list(model.graph):
        x = node.inputs[0] if _takes_the_largest(node) else None
        width = x.shape[1] if x is not None and x.shape is not None and len(x.shape) == 2 else None
        if x is not None and isinstance(width, int) and width >= SMALLEST:
            _replace(model.graph, node, x, width)
            modified = True
    return model, modified


def _takes_the_largest(node: ir.Node) -> bool:
    if node.op_type != "TopK" or node.domain:
        return False
    return node.attributes.get_int("axis", -1) in (-1, 1) and node.attributes.get_int("largest", 1) == 1


def _replace(graph: ir.Graph, node: ir.Node, x: ir.Value, width: int) -> None:
    k, size = node.inputs[1], next((size for size in _BLOCKS if width % size == 0), _BLOCKS[0])
    count, tape = -(-width // size), Tape()

    def constant(name: str, values: npt.ArrayLike) -> ir.Value:
        return add_initializer(graph, f"{node.name}.{name}", np.asarray(values))

    def op(op_type: str, inputs: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
        value = tape.op(op_type, inputs, attributes)
        value.type = inputs[0].type if inputs[0] is not None else None
        return value

    def top(values: ir.Value, count: ir.Value | None, **attributes: Any) -> Sequence[ir.Value]:
        best, places = tape.op_multi_out("TopK", [values, count], attributes, num_outputs=2)
        best.type, places.type = values.type, ir.TensorType(ir.DataType.INT64)
        return best, places

    if missing := count * size - width:
        lowest = constant("lowest", np.float32(-np.inf))
        x = op("Pad", [x, constant("missing", [0, 0, 0, missing]), lowest])
    blocks = op("Reshape", [x, constant("blocks", [-1, count, size])])
    chosen = op("Min", [k, constant("count", [count])])
    _, best = top(op("ReduceMax", [blocks, constant("axis", [2])], keepdims=0), chosen)
    in_order = op("Unsqueeze", [top(best, chosen, largest=0)[0], constant("last", [2])])
    scores, places = top(op("Flatten", [op("GatherND", [blocks, in_order], batch_dims=1)]), k)
    ids = op("Add", [op("Mul", [in_order, constant("size", size)]), constant("ids", np.arange(size))])
    found = op("GatherElements", [op("Flatten", [ids]), places], axis=1)
    graph.insert_before(node, tape.nodes)
    for old, new in zip(node.outputs, (scores, found), strict=True):
        new.name, new.shape, new.type = old.name, old.shape, old.type
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
