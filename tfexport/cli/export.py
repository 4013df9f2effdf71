"""`tfexport export CKPT -o BUNDLE`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tfexport.cli.console import megabytes, note, print_json, show_parity, warn
from tfexport.cli.import_flags import opened, with_import_flags
from tfexport.cli.values import byte_count, numbers
from tfexport_runtime.manifest import GraphFormat

if TYPE_CHECKING:
    from tfexport.export import ExportOptions
    from tfexport_train.checkpoint import Checkpoint


class Extra(StrEnum):
    """Outputs that are made on request."""

    ATTENTION = "attention"
    ENCODER_STATE = "encoder-state"


@with_import_flags
def export(
    checkpoint: Annotated[Path, typer.Argument(help="ckpt.pt of a training run, or a checkpoint of another kind.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Bundle to write: a folder, or a file with --zip.")],
    graph_format: Annotated[
        GraphFormat,
        typer.Option("--format", help="Of the graphs: onnx runs everywhere and is fastest; docs/formats.md compares."),
    ] = "onnx",
    ops: Annotated[
        Literal["ort", "portable"],
        typer.Option(help="ort: ONNX Runtime's fused operators, fastest. portable: standard ONNX operators only."),
    ] = "ort",
    precision: Annotated[
        Literal["fp32", "fp16", "int8", "int8-weight", "int4", "auto"],
        typer.Option(
            help="Of the weights; int8 computes in 8 bits as well; auto is the best measured for --target. "
            "Anything but fp32 may change tokens."
        ),
    ] = "fp32",
    target: Annotated[
        Literal["cpu", "web", "arm", "cuda"] | None,
        typer.Option(help="Where the bundle will run; anywhere if not given. Decides what auto means."),
    ] = None,
    keep_float: Annotated[
        list[str] | None, typer.Option(help="Pattern of weight names that stay in float; give it again for more.")
    ] = None,
    full_range: Annotated[
        bool, typer.Option("--full-range", help="int8: one bit more, right only on processors with VNNI or on Arm.")
    ] = False,
    max_bleu_loss: Annotated[
        float | None, typer.Option(help="With --reference: refuse a bundle that loses more BLEU than this.")
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(min=0, help="fp32: largest difference of logits and scores; T5's large activations need 1e-3."),
    ] = 1e-4,
    extra: Annotated[
        list[Extra] | None,
        typer.Option(
            "--with",
            help="attention: the decoder also gives what each token looks at in the source. "
            "encoder-state: the encoder also gives its last hidden states. Give it again for more.",
        ),
    ] = None,
    attention_layers: Annotated[
        str | None, typer.Option(help="For --with attention: the decoder's layers, from 0, such as 0,3; else the last.")
    ] = None,
    attention_heads: Annotated[
        str | None, typer.Option(help="For --with attention: the heads of these layers, from 0; else all.")
    ] = None,
    static: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Numbers for all shapes, such as source=64,target=64,rows=4: for NNAPI, Core ML and QNN. "
            "Longer texts then do not fit. In standard operators.",
        ),
    ] = None,
    weights_inside: Annotated[
        bool, typer.Option("--weights-inside", help="Of the format single: one file, without weights beside it.")
    ] = False,
    with_tokenizer: Annotated[
        bool, typer.Option("--with-tokenizer", help="Of the format single: also a graph from texts to texts.")
    ] = False,
    opset: Annotated[int, typer.Option(help="Version of the standard operators.")] = 18,
    max_shard_size: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Largest file of weights, such as 500MB (a GB is 10^9 bytes): more weights go into several. "
            "A tensor that is larger has a file to itself.",
        ),
    ] = "2GB",
    zipped: Annotated[bool, typer.Option("--zip", help="One uncompressed file instead of a folder.")] = False,
    text: Annotated[Path | None, typer.Option(help="Source text for the parity check, one a line.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Translations of --text, to give BLEU and chrF.")] = None,
    layout: Annotated[
        Literal["bundle", "optimum"],
        typer.Option(help="optimum: a folder for Optimum and transformers.js, of a Hugging Face checkpoint."),
    ] = "bundle",
    force: Annotated[bool, typer.Option("--force", help="Replace a bundle that is there already.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
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
        "--json": as_json,
    }
    if needless := [flag for flag, is_given in given.items() if is_given]:
        raise ExportError(f"--layout optimum is in float32 and standard operators; leave out {', '.join(needless)}")
    wanted = OptimumOptions(options.opset, options.force)
    report = export_optimum(original, checkpoint, output, wanted, progress=lambda stage: note(f"{stage} ..."))
    show_parity(report.parity)
    note(f"wrote {output}, {megabytes(report.bytes)}; load it with ORTModelForSeq2SeqLM or transformers.js")
