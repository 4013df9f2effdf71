"""Two ONNX graphs whose every shape is a number: what NNAPI, Core ML and QNN need. See SPEC.md, "Cache"."""

from __future__ import annotations

import re

import onnx_ir as ir

from tfexport.errors import ExportError
from tfexport.formats.format import Work
from tfexport.graphs.float_graphs import optimise
from tfexport.graphs.signature import FixedShape
from tfexport.graphs.trace import trace_fixed
from tfexport.passes.accelerator_operators import accelerator_operators

MAX_ROWS = 1024

_EXAMPLE = "source=64,target=64,rows=4"


def parse_fixed_shape(text: str) -> FixedShape:
    """ "source=64,target=64,rows=4", in any order. Raises ExportError."""
    found = dict(re.findall(r"(source|target|rows)=([0-9]{1,6})(?:,|$)", text.replace(" ", "")))
    if len(found) != 3 or text.count("=") != 3:
        raise ExportError(f"fixed shapes are given as {_EXAMPLE}, not {text!r}")
    return FixedShape(**{name: int(number) for name, number in found.items()})


def check_fixed_shape(work: Work, shape: FixedShape) -> None:
    """Raises ExportError for what does not go with numbers for shapes."""
    checkpoint = work.checkpoint
    longest = checkpoint.config.max_positions
    source, target = checkpoint.source, checkpoint.target
    added = source.add_bos + source.add_eos + len(source.prefix_ids) + len(source.suffix_ids)
    for name, least, most in (
        ("source", added + 1, longest),
        ("target", len(target.prefix_ids) + 1, longest),
        ("rows", 1, MAX_ROWS),
    ):
        if not least <= getattr(shape, name) <= most:
            raise ExportError(f"--static: {name} must be from {least} to {most} for this model")


def fixed_graphs(work: Work, shape: FixedShape) -> dict[str, ir.Model]:
    work.progress("trace graphs")
    graphs = trace_fixed(work.model, shape, work.options.opset)
    work.progress("optimise")
    return {name: accelerator_operators(optimise(graph))[0] for name, graph in graphs.items()}
