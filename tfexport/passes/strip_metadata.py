"""Removes what the tracer writes for its own debugging: source lines, file names, scopes."""

from __future__ import annotations

import onnx_ir as ir


def strip_metadata(model: ir.Model) -> tuple[ir.Model, bool]:
    """Returns the model, and whether anything was removed."""
    modified = False
    holders: list[ir.Model | ir.Graph | ir.Node | ir.Value] = [model, model.graph]
    holders += [*model.graph.inputs, *model.graph.initializers.values()]
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        holders += [node, *node.outputs]
    for holder in holders:
        modified |= bool(holder.metadata_props or holder.doc_string)
        holder.metadata_props.clear()
        holder.doc_string = None
    return model, modified
