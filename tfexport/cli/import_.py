"""`tfexport import CKPT -o ckpt.pt`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tfexport.cli.checkpoint_view import explanation_json, imported_json, show_explanation
from tfexport.cli.console import note, print_json, warn
from tfexport.cli.import_flags import import_options, with_import_flags
from tfexport_runtime.errors import OptionError


@with_import_flags
def import_(
    checkpoint: Annotated[Path, typer.Argument(help="A PyTorch file or a folder; tfexport inspect tells its kind.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Checkpoint to write.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what became of every weight.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    *,
    importing: Mapping[str, Any],
) -> None:
    """Turn a checkpoint of another kind into one of this project, for export and for training on.

    A file never runs code. What it does not tell is asked for, all at once; nothing is guessed.
    """
    from tfexport.checkpoints import open_checkpoint
    from tfexport.checkpoints.imported import MappingError, MissingFacts
    from tfexport_train.checkpoint import save_checkpoint

    if output is None and not explain and not as_json:
        raise OptionError("give --output CKPT.pt to write it, or --explain to look at its names")
    try:
        imported = open_checkpoint(checkpoint, import_options(checkpoint, importing))
    except (MappingError, MissingFacts) as error:
        if explain and as_json:
            print_json(explanation_json(error.explanation))
        elif explain:
            show_explanation(error.explanation)
        raise
    if explain and not as_json:
        show_explanation(imported.explanation)
    for remark in imported.notes:
        warn(remark)
    if output is not None:
        save_checkpoint(imported.checkpoint, output)
        note(f"wrote {output}, from: {imported.format}; next: tfexport export {output} -o bundle")
    if as_json:
        explained = explanation_json(imported.explanation) if explain else {}
        print_json({**imported_json(imported), **explained})
