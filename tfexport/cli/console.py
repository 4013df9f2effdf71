"""What all commands share in talking to people: tables on stdout, notes and progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from tfexport.agreement import Agreement, SearchAgreement
    from tfexport.parity import ParityReport


def note(message: str) -> None:
    """One line on stderr for a person who watches; nothing when stderr is a file or a pipe."""
    if sys.stderr.isatty():
        sys.stderr.write(message + "\n")


def warn(message: str) -> None:
    """One line on stderr that must not be missed."""
    sys.stderr.write(f"tfexport: {message}\n")


def progress() -> Progress:
    """A bar on stderr; silent when stderr is a file or a pipe."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """On stdout; columns after the first are set to the right where they are numbers. Not cut when piped."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=any(header))
    for column, name in enumerate(header):
        numeric = column > 0 and all(_is_number(row[column]) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 160
    Console(markup=False, highlight=False, width=width, file=sys.stdout).print(table)


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace("-", "").replace("e", "").replace(" ", "").isdigit() or not text


def show_parity(report: ParityReport) -> None:
    """The table of a comparison with PyTorch."""
    rows = [
        [
            row.name,
            f"{row.difference:.3g}",
            f"{row.limit:g}",
            str(row.compared),
            "ok" if row.ok else "FAILED",
            row.where,
        ]
        for row in report.rows
    ]
    print_table("Parity with PyTorch", ["what", "worst", "limit", "compared", "", "where"], rows)
    if report.quality:
        print_table("Quality", ["", ""], [[name, f"{value:.2f}"] for name, value in report.quality.items()])
    if report.agreement:
        show_agreement(report.agreement)


def show_agreement(agreement: Agreement) -> None:
    """Tokens of a reduced precision beside those of float32, and the noisiest layers."""
    from tfexport.agreement import SHOWN_LAYERS

    header = ["search", "the same tokens", "first other step: median", "earliest"]
    searches = [_agreement_row(search) for search in agreement.searches]
    forced = f"next token behind float32's translation so far, {agreement.compared} positions"
    print_table("Agreement with float32", header, [*searches, [forced, _percent(agreement.positions), "", ""]])
    rows = [[layer.weight, layer.graph, f"{layer.decibels:.1f}"] for layer in agreement.layers[:SHOWN_LAYERS]]
    if rows:
        print_table("Noisiest products: candidates for --keep-float", ["weight", "graph", "signal to noise, dB"], rows)


def _agreement_row(search: SearchAgreement) -> list[str]:
    steps = ["" if step is None else f"{step:g}" for step in (search.median, search.earliest)]
    return [search.search, _percent(search.same), *steps]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def print_json(value: object) -> None:
    import json

    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def megabytes(count: int) -> str:
    """1 MB is a million bytes."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
