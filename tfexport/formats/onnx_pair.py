"""Two ONNX graphs over one file of weights: what ONNX Runtime runs fastest, in every language."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from tfexport.errors import ExportError
from tfexport.formats.format import Work, Written, graph_info
from tfexport.graphs.float_graphs import optimise, trace_graphs
from tfexport.graphs.signature import GraphSignature, decoder_signature, encoder_signature
from tfexport.layer_noise import FloatWeights, float_weights
from tfexport.passes.attention_output import attention_output, attention_signature
from tfexport.passes.quantise_blocks import quantise_blocks
from tfexport.passes.quantise_int8 import FULL_RANGE, REDUCED_RANGE, quantise_int8
from tfexport.precision import PrecisionChoice
from tfexport.weights import write_shared_weights
from tfexport_runtime.manifest import CacheInfo, Requirements
from tfexport_runtime.session import open_model

__all__ = ["OPSETS", "open_model", "write"]

OPSETS = range(18, 24)
"""What the tracer writes and ONNX Runtime from 1.23 reads."""

WEIGHTS_FILE = "weights.bin"
_FILES = {"encoder": "encoder.onnx", "decoder": "decoder.onnx"}


def write(work: Work) -> Written:
    if work.options.opset not in OPSETS:
        raise ExportError(f"opset {work.options.opset} cannot be written; choose {OPSETS.start} to {OPSETS.stop - 1}")
    graphs, weights = build_graphs(work)
    work.progress("write")
    return write_graphs(work, graphs, weights)


def build_graphs(work: Work) -> tuple[dict[str, ir.Model], FloatWeights]:
    """Both graphs in the precision that is asked for, and the weights as they were before."""
    work.progress("trace graphs")
    graphs = trace_graphs(work.model, work.options.operators == "ort", work.options.opset)
    work.progress("optimise")
    graphs = {name: optimise(graph) for name, graph in graphs.items()}
    if work.options.attention:
        graphs["decoder"] = attention_output(graphs["decoder"], work.checkpoint.config.num_heads)
    weights = float_weights(graphs)
    return {name: quantise(graph, work.choice, work.options.keep_float) for name, graph in graphs.items()}, weights


def quantise(graph: ir.Model, choice: PrecisionChoice, patterns: Sequence[str]) -> ir.Model:
    """The graph in that precision, but for weights whose names match one of the patterns."""

    def keep_float(weight: ir.Value) -> bool:
        return any(fnmatch.fnmatch(weight.name or "", pattern) for pattern in patterns)

    if choice.precision == "int8":
        graph, _ = quantise_int8(graph, keep_float, FULL_RANGE if choice.full_range else REDUCED_RANGE)
    elif choice.precision != "fp32":
        graph, _ = quantise_blocks(graph, 4 if choice.precision == "int4" else 8, keep_float)
    return graph


def write_graphs(work: Work, graphs: Mapping[str, ir.Model], weights: FloatWeights) -> Written:
    write_shared_weights(list(graphs.values()), work.folder / WEIGHTS_FILE)
    for name, graph in graphs.items():
        ir.save(graph, work.folder / _FILES[name])
    domains = sorted({domain for graph in graphs.values() for domain in graph.opset_imports})
    return Written(
        graphs={name: graph_info(_FILES[name], signature) for name, signature in _signatures(work).items()},
        weights=[WEIGHTS_FILE],
        cache=CacheInfo("in_place" if work.options.operators == "ort" else "growing"),
        requirements=Requirements("1.23", tuple(domains)),
        opset=work.options.opset,
        ir_version=max(graph.ir_version for graph in graphs.values()),
        float_weights=weights,
    )


def _signatures(work: Work) -> dict[str, GraphSignature]:
    config = work.checkpoint.config
    decoder = decoder_signature(config, work.options.operators == "ort")
    if work.options.attention:
        decoder = decoder.with_output(attention_signature(config.num_heads))
    return {"encoder": encoder_signature(config), "decoder": decoder}
