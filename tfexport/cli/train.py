"""`tfexport train CONFIG.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfexport.cli.console import note
from tfexport_runtime.failures import STATUS_INTERRUPTED


def train(
    config: Annotated[Path, typer.Argument(help="Annotated YAML file, such as those in train/configs.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on exactly where the run in the folder stopped.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that the folder holds.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the run, instead of the file's.")
    ] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Stop after this time, instead of the file's.")] = None,
) -> None:
    """Train a model on parallel text; writes ckpt.pt, metrics and curves."""
    from dataclasses import replace

    from tfexport_train.settings import load_settings
    from tfexport_train.trainer import train as run_training

    settings = load_settings(config)
    if output is not None:
        settings = replace(settings, output=output)
    if max_minutes is not None:
        settings = replace(settings, training=replace(settings.training, max_minutes=max_minutes))
    result = run_training(settings, resume=resume, overwrite=overwrite)
    if result.interrupted:
        raise typer.Exit(STATUS_INTERRUPTED)
    note(f"next: tfexport export {result.checkpoint} -o bundle")
