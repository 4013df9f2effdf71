"""Products of one input become one: q, k and v; gate and up; the cross-attention keys and values of all layers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tfexport.passes.match import add_initializer, constant, matrix, only_use, vector, without_leftovers


@dataclass(frozen=True)
class _Product:
    """MatMul(x, weight), and Add(…, bias) behind it if there is one."""

    node: ir.Node
    weight: ir.Value
    bias: ir.Value | None
    result: ir.Value


def merge_products(model: ir.Model) -> tuple[ir.Model, bool]:
    """MatMul(x, A) and MatMul(x, B) become Split(MatMul(x, [A B])), their biases likewise.

    Returns the model, and whether anything was changed.
    """
    groups: dict[ir.Value, list[_Product]] = defaultdict(list)
    for node in model.graph:
        product = _product(node)
        if product is not None and node.inputs[0] is not None:
            groups[node.inputs[0]].append(product)
    modified = False
    for x, products in groups.items():
        if len(products) > 1 and len({p.bias is None for p in products}) == 1:
            _merge(model.graph, x, products)
            modified = True
    return without_leftovers(model), modified


def _product(node: ir.Node) -> _Product | None:
    if node.op_type != "MatMul" or node.domain or matrix(node.inputs[1]) is None:
        return None
    weight, product = node.inputs[1], node.outputs[0]
    assert weight is not None
    follower = only_use(product)
    if follower is not None and follower.op_type == "Add" and not follower.domain:
        bias = next((v for v in follower.inputs if v is not product), None)
        if vector(bias) is not None:
            return _Product(node, weight, bias, follower.outputs[0])
    return _Product(node, weight, None, product)


def _merge(graph: ir.Graph, x: ir.Value, products: Sequence[_Product]) -> None:
    first = products[0]
    name = f"{first.weight.name}.merged"
    weights = [_array(p.weight) for p in products]
    weight = add_initializer(graph, name, np.concatenate(weights, axis=1))
    product = ir.node("MatMul", [x, weight])
    product.outputs[0].type = first.result.type
    nodes = [product]
    if first.bias is not None:
        bias_name = f"{first.bias.name}.merged.{first.weight.name}"
        bias = add_initializer(graph, bias_name, np.concatenate([_array(p.bias) for p in products]))
        nodes.append(ir.node("Add", [product.outputs[0], bias]))
        nodes[-1].outputs[0].type = first.result.type
    sizes = add_initializer(graph, f"{name}.sizes", np.array([w.shape[1] for w in weights]))
    split = ir.node("Split", [nodes[-1].outputs[0], sizes], {"axis": -1}, num_outputs=len(products))
    nodes.append(split)
    graph.insert_before(first.node, nodes)
    for p, part in zip(products, split.outputs, strict=True):
        part.name, part.shape, part.type = p.result.name, p.result.shape, p.result.type
        ir.convenience.replace_all_uses_with(p.result, part)


def _array(value: ir.Value | None) -> npt.NDArray[np.float32]:
    tensor = constant(value)
    assert tensor is not None
    array: npt.NDArray[np.float32] = tensor.numpy()
    return array
