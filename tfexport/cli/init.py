"""`tfexport init CONFIG.yaml -o ckpt.pt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfexport.cli.console import note


def init(
    config: Annotated[Path, typer.Argument(help="Annotated YAML file, such as those in train/configs.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Checkpoint to write.")],
) -> None:
    """Write untrained weights, to try the size and speed of a shape before training it."""
    from tfexport_train.checkpoint import save_checkpoint
    from tfexport_train.init import initialise
    from tfexport_train.settings import load_settings

    checkpoint = initialise(load_settings(config))
    save_checkpoint(checkpoint, output)
    note(f"wrote {output}; next: tfexport export {output} -o bundle")
