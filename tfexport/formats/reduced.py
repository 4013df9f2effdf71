"""The graphs of a format in the precision that is asked for."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from tfexport.calibration import activation_ranges, evenly_spaced
from tfexport.formats.format import Work
from tfexport.magnitudes import largest_magnitudes
from tfexport.passes.half_precision import half_precision
from tfexport.passes.products import WeightFilter
from tfexport.passes.quantise_blocks import quantise_blocks
from tfexport.passes.quantise_int8 import FULL_RANGE, REDUCED_RANGE, ActivationRange, Int8Form, quantise_int8
from tfexport.samples import encoder_ids, random_sources
from tfexport_runtime.step_model import Target
from tfexport_train.evaluate import TorchTranslator, search_target

PROBED = 8  # texts on which the largest numbers are looked for, for half precision


def reduced(work: Work, graphs: Mapping[str, ir.Model]) -> tuple[dict[str, ir.Model], tuple[str, ...]]:
    """Of graphs in float32, but for weights that stay so; and what is to be said. Raises ExportError."""

    def keep_float(weight: ir.Value) -> bool:
        return any(fnmatch.fnmatch(weight.name or "", pattern) for pattern in work.options.keep_float)

    precision = work.choice.precision
    if precision == "fp16":
        return _halved(work, graphs, keep_float)
    if precision == "int8":
        ranges = _ranges(work, graphs)
        return {name: quantise_int8(g, keep_float, _form(work, ranges[name]))[0] for name, g in graphs.items()}, ()
    if precision in ("int8-weight", "int4"):
        bits = 4 if precision == "int4" else 8
        return {name: quantise_blocks(graph, bits, keep_float)[0] for name, graph in graphs.items()}, ()
    return dict(graphs), ()


def _form(work: Work, ranges: Mapping[str, ActivationRange]) -> Int8Form:
    options = work.options
    return Int8Form(
        largest=FULL_RANGE if work.choice.full_range else REDUCED_RANGE,
        turn_tables=options.target == "web" and options.format == "onnx",  # ort would store both forms
        ranges=ranges,
        bias_inside=not options.reproducible,
    )


def _ranges(work: Work, graphs: Mapping[str, ir.Model]) -> Mapping[str, Mapping[str, ActivationRange]]:
    """By graph and name: of activations, where there is a text to find them with."""
    if work.options.calibration is None:
        return {name: {} for name in graphs}
    texts = evenly_spaced(work.options.calibration)
    work.progress(f"calibrate with {len(texts)} lines")
    return activation_ranges(graphs, _target(work), work.checkpoint.config.pad_id, _sources(work, texts))


def _halved(
    work: Work, graphs: Mapping[str, ir.Model], keep_float: WeightFilter
) -> tuple[dict[str, ir.Model], tuple[str, ...]]:
    work.progress("look for numbers that half precision cannot hold")
    config, texts = work.checkpoint.config, work.options.texts or ()
    sources = _sources(work, texts[:PROBED]) or list(random_sources(config, PROBED, 20, seed=0))
    largest = largest_magnitudes(graphs, _target(work), config.pad_id, sources)
    halved, kept = {}, []
    for name, graph in graphs.items():
        halved[name], too_large = half_precision(graph, keep_float, largest[name])
        kept += [weight for weight in too_large if weight not in kept]
    return halved, (f"too large for half precision, kept in float32: {', '.join(kept)}",) if kept else ()


def _sources(work: Work, texts: Sequence[str]) -> list[Sequence[int]]:
    vocabularies = _translator(work).vocabularies
    return [ids for text in texts if (ids := encoder_ids(text, vocabularies))]


def _target(work: Work) -> Target:
    translator = _translator(work)
    return search_target(work.checkpoint.config, translator.vocabularies.target.size, translator.target.prefix_ids)


def _translator(work: Work) -> TorchTranslator:
    return TorchTranslator(work.model, work.checkpoint.source, work.checkpoint.target)
