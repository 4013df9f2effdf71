"""`tfexport export CKPT -o BUNDLE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tfexport.cli.console import megabytes, note, show_parity


def export(
    checkpoint: Annotated[Path, typer.Argument(help="ckpt.pt of a training run.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Bundle to write: a folder, or a file with --zip.")],
    ops: Annotated[
        Literal["ort", "portable"],
        typer.Option(help="ort: ONNX Runtime's fused operators, fastest. portable: standard ONNX operators only."),
    ] = "ort",
    precision: Annotated[
        Literal["fp32", "int8", "int8-weight", "int4"],
        typer.Option(help="Of the weights; int8 computes in 8 bits as well. Anything but fp32 may change tokens."),
    ] = "fp32",
    keep_float: Annotated[
        list[str] | None, typer.Option(help="Pattern of weight names that stay in float; give it again for more.")
    ] = None,
    full_range: Annotated[
        bool, typer.Option("--full-range", help="int8: one bit more, right only on processors with VNNI or on Arm.")
    ] = False,
    max_bleu_loss: Annotated[
        float | None, typer.Option(help="With --reference: refuse a bundle that loses more BLEU than this.")
    ] = None,
    opset: Annotated[int, typer.Option(help="Version of the standard operators.")] = 18,
    zipped: Annotated[bool, typer.Option("--zip", help="One uncompressed file instead of a folder.")] = False,
    text: Annotated[Path | None, typer.Option(help="Source text for the parity check, one a line.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Translations of --text, to give BLEU and chrF.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a bundle that is there already.")] = False,
) -> None:
    """Write a bundle and prove that it gives the same tokens as PyTorch.

    A bundle that fails the check is not written, and the exit status is 3.
    """
    from tfexport.export import ExportOptions, export_bundle
    from tfexport_runtime.line_stream import read_lines
    from tfexport_train.checkpoint import load_checkpoint

    options = ExportOptions(
        operators=ops,
        opset=opset,
        precision=precision,
        keep_float=tuple(keep_float or ()),
        full_range=full_range,
        max_bleu_loss=max_bleu_loss,
        zip=zipped,
        texts=read_lines(text) if text else None,
        references=read_lines(reference) if reference else None,
        force=force,
    )
    report = export_bundle(load_checkpoint(checkpoint), output, options, progress=lambda stage: note(f"{stage} ..."))
    show_parity(report.parity)
    note(f"wrote {output}, {megabytes(report.bytes)}; next: tfexport translate {output} < in.txt")
