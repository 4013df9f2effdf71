"""`tfexport verify BUNDLE CKPT`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tfexport.cli.console import note, print_json, show_parity, warn
from tfexport.cli.import_flags import opened, with_import_flags


@with_import_flags
def verify(
    bundle: Annotated[Path, typer.Argument(help="Folder or zip of a bundle.")],
    checkpoint: Annotated[Path, typer.Argument(help="What it was made from, as export took it.")],
    text: Annotated[Path | None, typer.Option(help="Source text to translate with both, one a line.")] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Translations of --text, to give BLEU and chrF of both.")
    ] = None,
    beam_size: Annotated[
        list[int] | None, typer.Option(min=1, help="Beams to compare; give it again for more. BLEU is of the last.")
    ] = None,
    alone: Annotated[int, typer.Option(min=0, help="Texts that are also translated one by one.")] = 100,
    tolerance: Annotated[
        float, typer.Option(min=0, help="fp32: largest difference of logits and scores, as export took it.")
    ] = 1e-4,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    *,
    importing: Mapping[str, Any],
) -> None:
    """Compare a bundle with PyTorch: logits, then tokens and scores of greedy and beam search.

    The exit status is 3 when they differ.
    """
    from tfexport.errors import ParityError
    from tfexport.verify import VerifyOptions, verify_bundle
    from tfexport_runtime.bundle import read_bundle
    from tfexport_runtime.line_stream import read_lines

    options = VerifyOptions(
        texts=read_lines(text) if text else None,
        references=read_lines(reference) if reference else None,
        beam_sizes=tuple(beam_size or (1, 4)),
        alone=alone,
        tolerance=tolerance,
    )
    model = opened(checkpoint, importing)
    note(f"comparing {bundle} with {checkpoint} ...")
    report = verify_bundle(read_bundle(bundle), model, options)
    if as_json:
        print_json(report.to_dict(complete=True))
    else:
        show_parity(report)
    if not report.passed:
        warn(f"{bundle} does not compute what {checkpoint} computes; export it again")
        raise typer.Exit(ParityError.exit_status)
