"""The two graphs of a model in float32, as every bundle begins: traced, then optimised."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

import onnx_ir as ir

from tfexport.graphs.trace import trace_decoder, trace_encoder
from tfexport.passes.merge_products import merge_products
from tfexport.passes.strip_metadata import strip_metadata
from tfexport.passes.tie_output_projection import tie_output_projection
from tfexport_train.model import EncoderDecoder

_PASSES: tuple[Callable[[ir.Model], tuple[ir.Model, bool]], ...] = (
    strip_metadata,
    tie_output_projection,
    merge_products,
)


def trace_graphs(model: EncoderDecoder, fused: bool, opset: int) -> dict[str, ir.Model]:
    """The encoder and the decoder. fused: with ONNX Runtime's operators, the cache in place."""
    return {"encoder": trace_encoder(model, fused, opset), "decoder": trace_decoder(model, fused, opset)}


def optimise(graph: ir.Model) -> ir.Model:
    for graph_pass in _PASSES:
        graph, _ = graph_pass(graph)
    graph.producer_name, graph.producer_version = "tfexport", importlib.metadata.version("tfexport")
    return graph
