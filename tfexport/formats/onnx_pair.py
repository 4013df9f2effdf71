"""Two ONNX graphs over one file of weights: what ONNX Runtime runs fastest, in every language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import onnx_ir as ir

from tfexport.errors import ExportError
from tfexport.formats.fixed_pair import check_fixed_shape, fixed_graphs
from tfexport.formats.format import Work, Written, graph_info
from tfexport.formats.reduced import reduced
from tfexport.graphs.float_graphs import optimise, trace_graphs
from tfexport.graphs.further_outputs import FurtherOutputs
from tfexport.graphs.signature import (
    GraphSignature,
    decoder_signature,
    encoder_signature,
    fixed_decoder_signature,
    fixed_encoder_signature,
)
from tfexport.layer_noise import FloatWeights, float_weights
from tfexport.passes.attention_output import attention_output
from tfexport.passes.block_top_k import block_top_k
from tfexport.passes.double_sums import double_sums, rough_operators
from tfexport.passes.encoder_state import encoder_state
from tfexport.passes.split_bias import split_bias
from tfexport.passes.written_attention import written_attention
from tfexport.passes.written_erf import written_erf
from tfexport.weights import write_shared_weights
from tfexport_runtime.manifest import CacheInfo, Requirements
from tfexport_train.config import EncoderDecoderConfig

if TYPE_CHECKING:
    from tfexport.export import ExportOptions

OPSETS = range(18, 24)
"""What the tracer writes and ONNX Runtime from 1.23 reads."""

_FILES = {"encoder": "encoder.onnx", "decoder": "decoder.onnx"}


def write(work: Work) -> Written:
    if work.options.opset not in OPSETS:
        raise ExportError(f"opset {work.options.opset} cannot be written; choose {OPSETS.start} to {OPSETS.stop - 1}")
    if work.options.static is not None:
        check_fixed_shape(work, work.options.static)
    graphs = build_graphs(work)
    if work.choice.precision not in ("fp32", "fp16"):
        graphs = {name: split_bias(graph)[0] for name, graph in graphs.items()}
    is_compared = work.choice.precision != "fp32" and work.options.texts is not None  # layer by layer; a copy in memory
    weights = float_weights(graphs) if is_compared else None
    if work.options.reproducible:
        graphs = {name: rounded_once(graph) for name, graph in graphs.items()}
    graphs, remarks = reduced(work, graphs)
    if work.options.reproducible:
        _check_rounding(graphs)
    work.progress("write")
    return write_graphs(work, graphs, weights, remarks)


def build_graphs(work: Work) -> dict[str, ir.Model]:
    """Both graphs in float32. Raises ExportError."""
    config, options = work.checkpoint.config, work.options
    further = FurtherOutputs.of(options, config)
    graphs = fixed_graphs(work, options.static) if options.static is not None else _traced(work)
    return with_further_outputs(graphs, further, config)


def with_further_outputs(
    graphs: Mapping[str, ir.Model], further: FurtherOutputs, config: EncoderDecoderConfig
) -> dict[str, ir.Model]:
    """Raises ExportError where a graph has nothing to give out."""
    encoder, decoder = graphs["encoder"], graphs["decoder"]
    if further.encoder_state:
        encoder = encoder_state(encoder, config, further.shape)
    if further.attention is not None:
        decoder = attention_output(decoder, config, further.attention, further.shape)
    return {"encoder": encoder, "decoder": decoder}


def _traced(work: Work) -> dict[str, ir.Model]:
    is_fused = work.options.operators == "ort"
    work.progress("trace graphs")
    traced = trace_graphs(work.model, is_fused, work.options.opset)
    work.progress("optimise")
    graphs = {name: optimise(graph) for name, graph in traced.items()}
    if is_fused:  # other engines may know a better way to TopK than the one that is best on ONNX Runtime's
        graphs["decoder"], _ = block_top_k(graphs["decoder"])
    return graphs


def rounded_once(graph: ir.Model) -> ir.Model:
    """What is computed in floats gives the same float32 on every processor, but for the products with weights."""
    for graph_pass in (written_attention, written_erf, double_sums):
        graph, _ = graph_pass(graph)
    return graph


def _check_rounding(graphs: Mapping[str, ir.Model]) -> None:
    for name, graph in graphs.items():
        if rough := rough_operators(graph):
            raise ExportError(
                f"{rough[0]} in the {name} would round otherwise on another processor; choose --opset 18, "
                "or leave out --reproducible"
            )


def write_graphs(
    work: Work, graphs: Mapping[str, ir.Model], weights: FloatWeights | None, remarks: tuple[str, ...] = ()
) -> Written:
    files = write_shared_weights(list(graphs.values()), work.folder, work.options.max_shard_bytes)
    for name, graph in graphs.items():
        ir.save(graph, work.folder / _FILES[name])
    domains = sorted({domain for graph in graphs.values() for domain in graph.opset_imports})
    return Written(
        graphs={name: graph_info(_FILES[name], signature) for name, signature in _signatures(work).items()},
        weights=files,
        cache=CacheInfo(_cache_form(work.options)),
        requirements=Requirements("1.23", tuple(domains)),
        opset=work.options.opset,
        ir_version=max(graph.ir_version for graph in graphs.values()),
        remarks=remarks,
        float_weights=weights,
    )


def _signatures(work: Work) -> dict[str, GraphSignature]:
    config, options = work.checkpoint.config, work.options
    if options.static is not None:
        encoder = fixed_encoder_signature(config, options.static)
        decoder = fixed_decoder_signature(config, options.static)
    else:
        encoder, decoder = encoder_signature(config), decoder_signature(config, options.operators == "ort")
    further = FurtherOutputs.of(options, config)
    encoder = encoder.with_outputs(further.of_encoder(config))
    decoder = decoder.with_outputs(further.of_decoder(config))
    if work.choice.precision == "fp16":
        encoder, decoder = encoder.in_half(), decoder.in_half()
    return {"encoder": encoder, "decoder": decoder}


def _cache_form(options: ExportOptions) -> Literal["in_place", "growing", "fixed"]:
    if options.static is not None:
        return "fixed"
    return "in_place" if options.operators == "ort" else "growing"
