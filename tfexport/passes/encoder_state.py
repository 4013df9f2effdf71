"""One more output of the encoder: its last hidden states, from which all that the decoder gets is computed."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tfexport.graphs.signature import FixedShape, TensorSignature
from tfexport.passes.match import add_initializer, matrix
from tfexport_train.config import EncoderDecoderConfig

ENCODER_STATE = "encoder_state"


def encoder_state_signature(config: EncoderDecoderConfig, numbers: FixedShape | None = None) -> TensorSignature:
    """float32 [B, S, d_model], after the final norm where there is one; at padding, nothing is meant."""
    batch, source = ("batch", "source") if numbers is None else (1, numbers.source)
    return TensorSignature(ENCODER_STATE, "float32", (batch, source, config.d_model))


def encoder_state(encoder: ir.Model, config: EncoderDecoderConfig, numbers: FixedShape | None = None) -> ir.Model:
    """Gives out what the first output, keys of the decoder's cross-attention, is projected from.

    numbers: of a graph of the fixed form, whose states have two axes inside.
    """
    node = encoder.graph.outputs[0].producer()
    while node is not None and not _is_projection(node):
        node = next((v.producer() for v in node.inputs if v is not None and v.producer() is not None), None)
    assert node is not None, "the cross-attention keys come from no product with weights"
    state = node.inputs[0]
    assert state is not None
    signature = encoder_state_signature(config, numbers)
    if numbers is not None:
        shape = add_initializer(encoder.graph, f"{ENCODER_STATE}.shape", np.array(signature.shape))
        reshape = ir.node("Reshape", [state, shape])
        encoder.graph.insert_before(node, reshape)
        state = reshape.outputs[0]
    state.name, state.dtype, state.shape = signature.name, ir.DataType.FLOAT, ir.Shape(signature.shape)
    encoder.graph.outputs.append(state)
    return encoder


def _is_projection(node: ir.Node) -> bool:
    return node.op_type in ("MatMul", "Gemm") and not node.domain and matrix(node.inputs[1]) is not None
