"""Errors of export and verification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfexport_runtime.errors import TfexportError

if TYPE_CHECKING:
    from tfexport.parity import ParityReport


class ExportError(TfexportError):
    """Something that cannot be exported as asked."""


class ParityError(TfexportError):
    """The bundle does not compute what the checkpoint computes; it was not published."""

    exit_status = 3

    def __init__(self, report: ParityReport) -> None:
        self.report = report
        worst = next(row for row in report.rows if not row.ok)
        where = f" at {worst.where}" if worst.where else ""
        super().__init__(
            f"parity failed: {worst.name} differs by {worst.difference:.3g} (limit {worst.limit:g}){where}; "
            "nothing was published"
        )
