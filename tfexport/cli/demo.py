"""`tfexport demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfexport.cli.console import megabytes, print_json, print_table

if TYPE_CHECKING:
    from tfexport.demo import DemoReport


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the run and the bundle.")] = Path("demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Train a small model on dates, export it, prove parity, translate unseen dates. Needs no data."""
    from tfexport.demo import run_demo
    from tfexport.errors import ParityError

    report = run_demo(output)
    if as_json:
        print_json(report.to_dict())
    else:
        _show(report)
    if not report.parity.passed:
        raise typer.Exit(ParityError.exit_status)


def _show(report: DemoReport) -> None:
    outcome = report.outcome
    examples = [[e.source, e.translation, "" if e.translation == e.expected else e.expected] for e in outcome.examples]
    print_table("Unseen dates", ["in", "out", "expected, where it differs"], examples)
    worst = max(report.parity.rows, key=lambda row: row.difference / row.limit if row.limit else row.difference)
    rows = {
        "model": f"{report.parameters:,} weights",
        "bundle": f"{megabytes(report.size)} in {report.bundle}",
        "parity with PyTorch": "passed" if report.parity.passed else f"FAILED: {worst.name} at {worst.where}",
        "exact match": f"{outcome.exact_match:.1f} % of {outcome.unseen} unseen dates",
        "latency": f"{outcome.latency:.1f} ms for one date",
        "throughput": f"{outcome.dates_per_second:.0f} dates/s",
        **{f"{stage}, seconds": f"{seconds:.1f}" for stage, seconds in report.seconds.items()},
        "total, seconds": f"{sum(report.seconds.values()):.1f}",
    }
    print_table("Result", ["", ""], [[name, value] for name, value in rows.items()])
    typer.echo(f'Try: echo "Dienstag, 3. März 2026" | tfexport translate {report.bundle}')
