"""More outputs of the decoder: what the newest token of each row looks at in the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tfexport.errors import ExportError
from tfexport.graphs.signature import FixedShape, TensorSignature
from tfexport.passes.match import add_initializer
from tfexport_train.config import EncoderDecoderConfig

ATTENTION_OUTPUT = "cross_attention"


@dataclass(frozen=True)
class AttentionChoice:
    """Whose cross-attention the decoder gives; numbers count from 0."""

    layers: tuple[int, ...] = ()  # of the decoder; none: the last, as `cross_attention`
    heads: tuple[int, ...] = ()  # of each of these layers; none: all

    def outputs(self, config: EncoderDecoderConfig) -> dict[int, str]:
        """Layer to name of its output: with the layer's number in it where layers were chosen."""
        if not self.layers:
            return {config.num_decoder_layers - 1: ATTENTION_OUTPUT}
        return {layer: f"{ATTENTION_OUTPUT}.{layer}" for layer in self.layers}

    def check(self, config: EncoderDecoderConfig, wanted: bool) -> None:
        """Raises ExportError for layers and heads that the model does not have, or for any without --with attention."""
        if not wanted and (self.layers or self.heads):
            raise ExportError("layers or heads of the attention were chosen, but not itself: add --with attention")
        for name, chosen, count in (
            ("layer", self.layers, config.num_decoder_layers),
            ("head", self.heads, config.num_heads),
        ):
            if wrong := [number for number in chosen if not 0 <= number < count]:
                raise ExportError(
                    f"no decoder {name} {wrong[0]} to give the attention of; choose from 0 to {count - 1}"
                )
            if len(set(chosen)) != len(chosen):
                raise ExportError(f"a {name} is given twice for the attention; give each once")


def attention_signatures(
    config: EncoderDecoderConfig, choice: AttentionChoice, numbers: FixedShape | None = None
) -> list[TensorSignature]:
    """float32 [R, H, S] for each layer; each row of S adds up to 1 over the real tokens."""
    rows, source = ("rows", "source") if numbers is None else (numbers.rows, numbers.source)
    shape = (rows, len(choice.heads) or config.num_heads, source)
    return [TensorSignature(name, "float32", shape) for name in choice.outputs(config).values()]


def attention_output(
    decoder: ir.Model, config: EncoderDecoderConfig, choice: AttentionChoice, numbers: FixedShape | None = None
) -> ir.Model:
    """Gives out the weights of cross-attentions, each the last softmax of its layer: [B, H, K, S] in the graph.

    numbers: of graphs of the fixed form. Raises ExportError where the graph has no softmax to give out.
    """
    softmaxes = [node for node in decoder.graph if node.op_type == "Softmax" and not node.domain]
    layers = config.num_decoder_layers
    if not softmaxes or len(softmaxes) % layers:
        raise ExportError("--with attention needs attention written out; choose --opset 18 to 22")
    of_layer = softmaxes[len(softmaxes) // layers - 1 :: len(softmaxes) // layers]
    for layer, signature in zip(choice.outputs(config), attention_signatures(config, choice, numbers), strict=True):
        _give_out(decoder.graph, of_layer[layer], signature, config.num_heads, choice.heads)
    return decoder


def _give_out(
    graph: ir.Graph, softmax: ir.Node, signature: TensorSignature, all_heads: int, heads: Sequence[int]
) -> None:
    """The look-up of heads comes last: accelerators without one take all that is before it in one piece."""
    name, (rows, _, source) = signature.name, signature.shape
    if isinstance(rows, int):  # in numbers there are no beams
        nodes, sizes = [], [rows, all_heads, source]
    else:
        by_beam = ir.node("Transpose", [softmax.outputs[0]], {"perm": [0, 2, 1, 3]})
        nodes, sizes = [by_beam, ir.node("Flatten", [by_beam.outputs[0]], {"axis": 2})], [0, all_heads, -1]
    shape = add_initializer(graph, f"{name}.shape", np.array(sizes))
    nodes.append(ir.node("Reshape", [nodes[-1].outputs[0] if nodes else softmax.outputs[0], shape]))
    if heads:
        chosen = add_initializer(graph, f"{name}.heads", np.array(heads))
        nodes.append(ir.node("Gather", [nodes[-1].outputs[0], chosen], {"axis": 1}))
    graph.insert_after(softmax, nodes)
    weights = nodes[-1].outputs[0]
    weights.name, weights.dtype, weights.shape = name, ir.DataType.FLOAT, ir.Shape(signature.shape)
    graph.outputs.append(weights)
