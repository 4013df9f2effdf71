"""A folder that Optimum's ORTModelForSeq2SeqLM and transformers.js load, from a Hugging Face folder.

Standard operators, float32. Beside the graphs in `onnx/` lie the configuration and tokenizer files of the original.
Generation is then the library's own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from tfexport.errors import ExportError, ParityError
from tfexport.graphs.float_graphs import optimise
from tfexport.layouts.optimum_graphs import trace_cross, trace_optimum_encoder, trace_steps
from tfexport.layouts.optimum_merge import merge_with_cross
from tfexport.layouts.optimum_parity import verify_optimum
from tfexport.parity import ParityReport
from tfexport.publish import published_when_complete
from tfexport_train.checkpoint import Checkpoint
from tfexport_train.model import EncoderDecoder

GRAPHS_FOLDER = "onnx"  # where transformers.js looks; Optimum finds them anywhere
ENCODER, DECODER = "encoder_model.onnx", "decoder_model_merged.onnx"
_COPIED = (".json", ".txt", ".model", ".spm")  # configuration and tokenizer, by their suffixes
_LARGEST_FILE = 2**31 - 2**24  # bytes of weights that a graph can hold itself


@dataclass(frozen=True)
class OptimumOptions:
    opset: int = 18
    force: bool = False  # replace what is at the target


@dataclass(frozen=True)
class OptimumReport:
    parity: ParityReport
    bytes: int  # of the whole folder


def export_optimum(
    original: Path,
    checkpoint: Checkpoint,
    target: Path,
    options: OptimumOptions,
    progress: Callable[[str], None] = lambda stage: None,
) -> OptimumReport:
    """Writes a verified folder to `target`, or nothing. original: the Hugging Face folder that the checkpoint is of.

    Raises ExportError for what is no such folder, ParityError when the graphs do not compute what the checkpoint does.
    """
    if not (original / "config.json").is_file():
        raise ExportError(f"{original}: not a Hugging Face folder, the only kind that can be written for Optimum")
    with published_when_complete(target, False, options.force) as folder:
        progress("trace graphs")
        model = checkpoint.view_model()
        graphs = _graphs(model, options.opset)
        progress("write")
        _write(graphs, folder / GRAPHS_FOLDER)
        _copy_texts(original, folder)
        progress("verify")
        parity = verify_optimum(model, folder / GRAPHS_FOLDER / ENCODER, folder / GRAPHS_FOLDER / DECODER)
        if not parity.passed:
            raise ParityError(parity)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return OptimumReport(parity, size)


def _graphs(model: EncoderDecoder, opset: int) -> dict[str, ir.Model]:
    encoder, steps, cross = (
        optimise(trace(model, opset)) for trace in (trace_optimum_encoder, trace_steps, trace_cross)
    )
    return {ENCODER: encoder, DECODER: merge_with_cross(steps, cross)}


def _write(graphs: dict[str, ir.Model], folder: Path) -> None:
    folder.mkdir()
    for name, graph in graphs.items():
        weights = (value.const_value for value in graph.graph.initializers.values())
        small = sum(tensor.nbytes for tensor in weights if tensor is not None) < _LARGEST_FILE
        ir.save(graph, folder / name, external_data=None if small else f"{name}_data")


def _copy_texts(original: Path, folder: Path) -> None:
    for file in original.iterdir():
        if file.is_file() and file.suffix in _COPIED and not file.name.endswith(".index.json"):
            shutil.copyfile(file, folder / file.name)
