"""Where a graph multiplies by weights and where it looks things up in a table: what precisions are about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from tfexport.passes.match import matrix

WeightFilter = Callable[[ir.Value], bool]
"""True for weights that a pass must leave alone."""


@dataclass(frozen=True)
class Product:
    """x W, or x times the transpose of W."""

    x: ir.Value
    weight: ir.Value
    transposed: bool


def product_of(node: ir.Node) -> Product | None:
    """MatMul(x, W), or Gemm(x, W, transB=1) without a third input, with a constant W of two axes."""
    if node.domain or len(node.inputs) < 2:
        return None
    x, weight = node.inputs[:2]
    if x is None or weight is None or matrix(weight) is None:
        return None
    if node.op_type == "MatMul":
        return Product(x, weight, transposed=False)
    if node.op_type == "Gemm" and len(node.inputs) == 2 and _integer(node, "transB"):
        return Product(x, weight, transposed=True)
    return None


def lookup_of(node: ir.Node) -> ir.Value | None:
    """The table of Gather(table, ids) over the first axis, if it is a matrix of token embeddings."""
    if node.op_type != "Gather" or node.domain or _integer(node, "axis"):
        return None
    table = node.inputs[0]
    tensor = matrix(table)
    if table is None or tensor is None or tensor.dtype != ir.DataType.FLOAT:
        return None
    name = table.name or ""
    return None if "position" in name or "relative_bias" in name else table


def _integer(node: ir.Node, name: str) -> int:
    """An attribute, 0 where it is not given."""
    return node.attributes[name].as_int() if name in node.attributes else 0
