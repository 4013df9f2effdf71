"""A product and its bias apart, so that the product can be had in fewer bits."""

from __future__ import annotations

import onnx_ir as ir

from tfexport.passes.match import matrix, vector


def split_bias(model: ir.Model) -> tuple[ir.Model, bool]:
    """Gemm(x, W, b, transB=1) becomes Add(Gemm(x, W), b), with constant W and b.

    Tracing makes such a Gemm of an output projection with a bias. Returns the model, and whether anything was changed.
    """
    modified = False
    for node in list(model.graph):
        if _is_projection_with_bias(node):
            x, weight, bias = node.inputs
            product = ir.node("Gemm", [x, weight], {"transB": 1})
            total = ir.node("Add", [product.outputs[0], bias])
            product.outputs[0].shape, product.outputs[0].type = node.outputs[0].shape, node.outputs[0].type
            ir.convenience.replace_nodes_and_values(
                model.graph, node, [node], [product, total], node.outputs, total.outputs
            )
            modified = True
    return model, modified


def _is_projection_with_bias(node: ir.Node) -> bool:
    if node.op_type != "Gemm" or node.domain or len(node.inputs) != 3:
        return False
    attributes = node.attributes
    is_plain = attributes.get_float("alpha", 1.0) == attributes.get_float("beta", 1.0) == 1.0
    sides = attributes.get_int("transA", 0), attributes.get_int("transB", 0)
    return is_plain and sides == (0, 1) and matrix(node.inputs[1]) is not None and vector(node.inputs[2]) is not None
