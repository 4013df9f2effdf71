"""`tfexport export CKPT -o BUNDLE`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tfexport.cli import export_flags as flag
from tfexport.cli.console import megabytes, note, print_json, show_parity, warn
from tfexport.cli.export_flags import Extra
from tfexport.cli.import_flags import opened, with_import_flags
from tfexport.cli.values import byte_count, numbers

if TYPE_CHECKING:
    from tfexport.export import ExportOptions
    from tfexport_train.checkpoint import Checkpoint


@with_import_flags
def export(
    checkpoint: flag.Input,
    output: flag.Output,
    zipped: flag.Zipped = False,
    layout: flag.Layout = "bundle",
    max_shard_size: flag.MaxShardSize = "2GB",
    force: flag.Force = False,
    as_json: flag.AsJson = False,
    graph_format: flag.Format = "onnx",
    ops: flag.Ops = "ort",
    static: flag.Static = None,
    opset: flag.Opset = 18,
    weights_inside: flag.WeightsInside = False,
    with_tokenizer: flag.WithTokenizer = False,
    precision: flag.Precision = "fp32",
    target: flag.Target = None,
    keep_float: flag.KeepFloat = None,
    full_range: flag.FullRange = False,
    calibrate: flag.Calibrate = None,
    reproducible: flag.Reproducible = False,
    max_bleu_loss: flag.MaxBleuLoss = None,
    extra: flag.With = None,
    attention_layers: flag.AttentionLayers = None,
    attention_heads: flag.AttentionHeads = None,
    text: flag.Text = None,
    reference: flag.Reference = None,
    tolerance: flag.Tolerance = 1e-4,
    *,
    importing: Mapping[str, Any],
) -> None:
    """Write a bundle and prove that it gives the same tokens as PyTorch.

    A bundle that fails the check is not written, and the exit status is 3.
    """
    from tfexport.export import ExportOptions, export_bundle
    from tfexport.formats.fixed_pair import parse_fixed_shape
    from tfexport_runtime.line_stream import read_lines

    options = ExportOptions(
        format=graph_format,
        operators=ops,
        static=parse_fixed_shape(static) if static else None,
        opset=opset,
        target=target,
        precision=precision,
        keep_float=tuple(keep_float or ()),
        full_range=full_range,
        calibration=read_lines(calibrate) if calibrate else None,
        reproducible=reproducible,
        tolerance=tolerance,
        attention=Extra.ATTENTION in (extra or ()),
        attention_layers=numbers(attention_layers),
        attention_heads=numbers(attention_heads),
        encoder_state=Extra.ENCODER_STATE in (extra or ()),
        weights_inside=weights_inside,
        with_tokenizer=with_tokenizer,
        max_bleu_loss=max_bleu_loss,
        max_shard_bytes=byte_count(max_shard_size),
        zip=zipped,
        texts=read_lines(text) if text else None,
        references=read_lines(reference) if reference else None,
        force=force,
    )
    model = opened(checkpoint, importing)
    if layout == "optimum":
        _export_optimum(checkpoint, model, output, options, as_json)
        return
    report = export_bundle(model, output, options, progress=lambda stage: note(f"{stage} ..."))
    for remark in report.remarks:
        warn(remark)
    if as_json:
        print_json(report.to_dict())
    else:
        if precision == "auto" or target is not None:
            typer.echo(str(report.choice))
        show_parity(report.parity)
    note(f"wrote {output}, {megabytes(report.bytes)}; next: tfexport translate {output} < in.txt")


def _export_optimum(
    original: Path, checkpoint: Checkpoint, output: Path, options: ExportOptions, as_json: bool
) -> None:
    from tfexport.errors import ExportError
    from tfexport.layouts.optimum import OptimumOptions, export_optimum

    given = {
        "--format": options.format != "onnx",
        "--precision": options.precision != "fp32",
        "--static": options.static is not None,
        "--target": options.target is not None,
        "--zip": options.zip,
        "--text": options.texts is not None,
        "--with": options.attention or options.encoder_state,
        "--calibrate": options.calibration is not None,
        "--reproducible": options.reproducible,
        "--json": as_json,
    }
    if needless := [flag for flag, is_given in given.items() if is_given]:
        raise ExportError(f"--layout optimum is in float32 and standard operators; leave out {', '.join(needless)}")
    wanted = OptimumOptions(options.opset, options.force)
    report = export_optimum(original, checkpoint, output, wanted, progress=lambda stage: note(f"{stage} ..."))
    show_parity(report.parity)
    note(f"wrote {output}, {megabytes(report.bytes)}; load it with ORTModelForSeq2SeqLM or transformers.js")
