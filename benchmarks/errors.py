"""What can stop a comparison."""

from __future__ import annotations

from tfexport_runtime.errors import TfexportError


class BenchmarkError(TfexportError):
    """A comparison that cannot be made as asked."""
