"""Residual sum and norm in one operator, com.microsoft::SkipLayerNormalization, with the sub-layer's bias inside."""

from __future__ import annotations

import onnx_ir as ir

from tfexport.passes.match import is_op, only_use, vector, without_leftovers

MICROSOFT = "com.microsoft"


def skip_layer_norm(model: ir.Model) -> tuple[ir.Model, bool]:
    """LayerNormalization(x + (y + bias)) becomes SkipLayerNormalization(y, x, gamma, beta, bias).

    The sum stays to be had as the operator's fourth output: the pre-norm form adds the next sub-layer to it. Returns
    the model, and whether anything was changed.
    """
    modified = False
    for norm in list(model.graph):
        total = norm.inputs[0] if norm.op_type == "LayerNormalization" and not norm.domain else None
        if total is None or not is_op(total, "Add") or len(norm.inputs) != 3:
            continue
        _fuse(model.graph, norm, total)
        modified = True
    if modified:
        model.graph.opset_imports[MICROSOFT] = 1
    return without_leftovers(model), modified


def _fuse(graph: ir.Graph, norm: ir.Node, total: ir.Value) -> None:
    add = total.producer()
    assert add is not None
    branch, skip, bias = _operands(add)
    inputs = [branch, skip, norm.inputs[1], norm.inputs[2], bias]
    epsilon = norm.attributes.get_float("epsilon", 1e-5)
    fused = ir.node("SkipLayerNormalization", inputs, {"epsilon": epsilon}, domain=MICROSOFT, num_outputs=4)
    graph.insert_before(norm, fused)
    for old, new in ((norm.outputs[0], fused.outputs[0]), (total, fused.outputs[3])):
        new.shape, new.type = old.shape, old.type
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        new.name = old.name


def _operands(add: ir.Node) -> tuple[ir.Value | None, ir.Value | None, ir.Value | None]:
    """(sub-layer without bias, residual, bias) of residual + (sub-layer + bias)."""
    for branch, skip in ((add.inputs[0], add.inputs[1]), (add.inputs[1], add.inputs[0])):
        if branch is None or not is_op(branch, "Add") or only_use(branch) is not add:
            continue
        bias_add = branch.producer()
        assert bias_add is not None
        for inner, bias in (bias_add.inputs, bias_add.inputs[::-1]):
            if vector(bias) is not None and is_op(inner, "MatMul"):
                return inner, skip, bias
    return add.inputs[0], add.inputs[1], None
