"""One more output of the decoder: what the newest token of each row looks at in the source."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tfexport.graphs.signature import TensorSignature
from tfexport.passes.match import add_initializer

ATTENTION_OUTPUT = "cross_attention"


def attention_signature(heads: int) -> TensorSignature:
    """float32 [R, H, S]; each row of S adds up to 1 over the real tokens."""
    return TensorSignature(ATTENTION_OUTPUT, "float32", ("rows", heads, "source"))


def attention_output(decoder: ir.Model, heads: int) -> ir.Model:
    """Gives out the weights of the last layer's cross-attention: the last softmax of the graph, [B, H, K, S]."""
    graph = decoder.graph
    softmax = [node for node in graph if node.op_type == "Softmax" and not node.domain][-1]
    shape = add_initializer(graph, f"{ATTENTION_OUTPUT}.shape", np.array([0, heads, -1]))
    by_beam = ir.node("Transpose", [softmax.outputs[0]], {"perm": [0, 2, 1, 3]})
    flat = ir.node("Flatten", [by_beam.outputs[0]], {"axis": 2})
    by_head = ir.node("Reshape", [flat.outputs[0], shape])
    graph.insert_after(softmax, [by_beam, flat, by_head])
    weights = by_head.outputs[0]
    weights.name, weights.dtype = ATTENTION_OUTPUT, ir.DataType.FLOAT
    weights.shape = ir.Shape(attention_signature(heads).shape)
    graph.outputs.append(weights)
    return decoder
