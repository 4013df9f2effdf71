"""The times as bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.speed import RowResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "tfexport fp32": "#0b4f8a",
    "tfexport int8": "#1f83d6",
    "tfexport calibrated int8": "#1aa3a3",
    "tfexport int4": "#86c5ff",
    "CTranslate2 int8": "#d9822b",
    "CTranslate2 float32": "#9c5a14",
    "Optimum fp32": "#7a9a3a",
    "transformers fp32": "#8a6fb0",
    "PyTorch, cached": "#b04a4a",
    "PyTorch, recomputing": "#5b5b5b",
}


def draw(results: Sequence[RowResult], path: Path) -> None:
    """One panel for each number of threads, a group of bars for each row; the scale is logarithmic."""
    if not results:
        return
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    counts = list(dict.fromkeys(r.row.threads for r in results))
    figure, panels = plt.subplots(len(counts), 1, figsize=(11, 3.6 * len(counts)), squeeze=False)
    for threads, axes in zip(counts, panels[:, 0], strict=True):
        _panel(axes, [r for r in results if r.row.threads == threads])
        axes.set_title(f"Transformer-base, milliseconds a step, {threads} thread{'s'[: threads > 1]}", loc="left")
    panels[0, 0].legend(fontsize=8, ncols=3, frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(axes: Axes, results: Sequence[RowResult]) -> None:
    names = [name for name in COLOURS if any(name in r.times for r in results)]
    width = 0.85 / max(len(names), 1)
    for place, name in enumerate(names):
        at = [i + (place - (len(names) - 1) / 2) * width for i, r in enumerate(results) if name in r.times]
        figures = [r.figure(name) for r in results if name in r.times]
        bars = axes.bar(at, figures, width, label=name, color=COLOURS[name])
        axes.bar_label(bars, [f"{figure:.3g}" for figure in figures], fontsize=6, rotation=90, padding=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.set_xticks(range(len(results)), [r.row.label for r in results])
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.02, y=0.3)
