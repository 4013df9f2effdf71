"""One more output of the encoder: its last hidden states, from which all that the decoder gets is computed."""

from __future__ import annotations

import onnx_ir as ir

from tfexport.graphs.signature import TensorSignature
from tfexport.passes.products import product_of
from tfexport_train.config import EncoderDecoderConfig

ENCODER_STATE = "encoder_state"


def encoder_state_signature(config: EncoderDecoderConfig) -> TensorSignature:
    """float32 [B, S, d_model], after the final norm where there is one; at padding, nothing is meant."""
    return TensorSignature(ENCODER_STATE, "float32", ("batch", "source", config.d_model))


def encoder_state(encoder: ir.Model, config: EncoderDecoderConfig) -> ir.Model:
    """Gives out what the first output, keys of the decoder's cross-attention, is projected from."""
    node = encoder.graph.outputs[0].producer()
    while node is not None and product_of(node) is None:
        node = next((v.producer() for v in node.inputs if v is not None and v.producer() is not None), None)
    assert node is not None, "the cross-attention keys come from no product with weights"
    state = node.inputs[0]
    assert state is not None
    signature = encoder_state_signature(config)
    state.name, state.dtype, state.shape = signature.name, ir.DataType.FLOAT, ir.Shape(signature.shape)
    encoder.graph.outputs.append(state)
    return encoder
