"""The course of a run as a picture, from metrics.jsonl."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfexport_train.atomic import replaced_when_complete

Record = dict[str, Any]


def draw_curves(records: Sequence[Record], path: Path) -> None:
    """Loss and learning rate on the left, metrics on the right, against the step. Writes a PNG, atomically."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    loss, metric = figure.subplots(1, 2)
    for name, label in (("train_loss", "training"), ("valid_loss", "validation")):
        _plot(loss, records, name, label)
    loss.set(xlabel="step", ylabel="loss (nats a token)")
    rate = loss.twinx()
    _plot(rate, records, "learning_rate", "learning rate", color="0.8")
    rate.set_ylabel("learning rate", color="0.6")
    loss.set_zorder(rate.get_zorder() + 1)
    loss.patch.set_visible(False)
    for name, label in (("bleu", "BLEU"), ("chrf", "chrF"), ("exact_match", "exact match, %")):
        _plot(metric, records, name, label)
    metric.set(xlabel="step", ylabel="validation, greedy")
    for axes in (loss, metric):
        if axes.lines:
            axes.legend(loc="best")
    picture = io.BytesIO()
    FigureCanvasAgg(figure).print_figure(picture, format="png")
    with replaced_when_complete(path) as temporary:
        temporary.write_bytes(picture.getvalue())


def _plot(axes: Any, records: Sequence[Record], name: str, label: str, **style: Any) -> None:
    points = [(r["step"], r[name]) for r in records if r.get(name) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, **style)
