"""One ONNX graph with the whole search inside, for hosts that can only call a model once: ids in, ids out."""

from __future__ import annotations

import onnx_ir as ir

from tfexport.errors import ExportError
from tfexport.formats.format import Work, Written, graph_info
from tfexport.formats.onnx_pair import OPSETS, with_further_outputs
from tfexport.formats.single_text import check_text, write_text_search
from tfexport.graphs.float_graphs import optimise, trace_graphs
from tfexport.graphs.further_outputs import FurtherOutputs
from tfexport.graphs.search_graph import build_search
from tfexport.graphs.search_signature import search_signature
from tfexport.weights import write_shared_weights
from tfexport_runtime.manifest import CacheInfo, Requirements
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.step_model import Target
from tfexport_train.evaluate import search_target

FILE = "search.onnx"
MAX_BYTES_INSIDE = 2_000_000_000  # of weights: a file of ONNX ends at 2 GiB


def write(work: Work) -> Written:
    check(work)
    config = work.checkpoint.config
    further = FurtherOutputs.of(work.options, config)
    signature = search_signature(config, further)
    work.progress("trace graphs")
    traced = trace_graphs(work.model, False, work.options.opset)
    work.progress("optimise")
    graphs = with_further_outputs({name: optimise(graph) for name, graph in traced.items()}, further, config)
    defaults = TranslationOptions().with_changes(work.checkpoint.generation)
    search = build_search(graphs["encoder"], graphs["decoder"], _target(work), config.pad_id, defaults, signature)
    ir_version = search.ir_version
    work.progress("write")
    weights: list[str] = []
    if not work.options.weights_inside:
        weights = write_shared_weights([search], work.folder, work.options.max_shard_bytes)
    ir.save(search, work.folder / FILE)
    if work.options.with_tokenizer:
        write_text_search(work, search)
    return Written(
        graphs={"search": graph_info(FILE, signature)},
        weights=weights,
        cache=CacheInfo("growing"),
        requirements=Requirements("1.23", ("",)),
        opset=work.options.opset,
        ir_version=ir_version,
        operators="portable",
    )


def check(work: Work) -> None:
    """Raises ExportError for what this format cannot do."""
    options = work.options
    if options.opset not in OPSETS:
        raise ExportError(f"opset {options.opset} cannot be written; choose {OPSETS.start} to {OPSETS.stop - 1}")
    if work.choice.precision != "fp32":
        raise ExportError("the format single is in float32 and standard operators; choose --precision fp32")
    if options.with_tokenizer:
        check_text(work)
    if options.weights_inside and 4 * sum(p.numel() for p in work.model.parameters()) > MAX_BYTES_INSIDE:
        raise ExportError("weights above 2 GB do not fit into the graph's file; leave out --weights-inside")


def _target(work: Work) -> Target:
    checkpoint, config = work.checkpoint, work.checkpoint.config
    size = checkpoint.target.tokenizer(config.unk_id).size
    return search_target(config, size, checkpoint.target.prefix_ids)
