"""What was measured, on the screen and in files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chart import draw
from benchmarks.cold.measure import Cold
from benchmarks.growth import Growth
from benchmarks.roster import ENTRIES
from benchmarks.small import SmallEnd
from benchmarks.speed import Check, Ratio, RowResult, ratios
from tfexport.cli.console import print_table

Table = tuple[str, list[str], list[list[str]]]
"""Title, header, rows."""


@dataclass(frozen=True)
class Size:
    """Bytes on disk, and over those of the weights in float32."""

    name: str
    size: int
    share: float


@dataclass(frozen=True)
class Floor:
    """A step at batch 1 against the time in which its weights can be read, in milliseconds."""

    name: str
    threads: int
    bandwidth: float  # bytes a second
    floor: float
    step: float


@dataclass
class Results:
    """Everything of one run."""

    machine: dict[str, Any]
    checks: list[Check] = field(default_factory=list)
    rows: list[RowResult] = field(default_factory=list)
    cold: list[Cold] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    floors: list[Floor] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)
    small: list[SmallEnd] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        names = {name for result in self.rows for name in result.times}
        settings = {entry.name: entry.settings for entry in ENTRIES if entry.name in names}
        rows = [{**asdict(r), "sentences_per_second": _speeds(r)} for r in self.rows]
        found = [{**asdict(r), "verdict": r.verdict} for r in ratios(self.rows)]
        return {**asdict(self), "rows": rows, "ratios": found, "settings": settings}


def _speeds(result: RowResult) -> dict[str, float]:
    return {name: round(result.sentences_per_second(name), 2) for name in result.times}


def show(results: Results) -> None:
    for title, header, rows in tables(results):
        print_table(title, header, rows)


def write(results: Results, folder: Path) -> None:
    """results.json, results.md and, where speed was measured, results.png."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results.to_dict(), indent=1, ensure_ascii=False)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")
    (folder / "results.md").write_text(_markdown(results), encoding="utf-8")
    draw([r for r in results.rows if r.row.model == "base"], folder / "results.png")


def tables(results: Results) -> list[Table]:
    found = [_settings_table(results), _checks_table(results)]
    for model, title in (
        ("base", "untrained Transformer-base, ms a step"),
        ("trained", "trained model, ms a sentence"),
    ):
        for threads in dict.fromkeys(r.row.threads for r in results.rows if r.row.model == model):
            part = [r for r in results.rows if (r.row.model, r.row.threads) == (model, threads)]
            found.append(_times_table(f"{title}, {_threads(threads)}, minimum (median)", part))
    found.append(_sentences_table(results.rows))
    found += [_ratios_table(ratios(results.rows)), _cold_table(results.cold), _sizes_table(results.sizes)]
    found += [_floors_table(results.floors), _growth_table(results.growth), _small_table(results.small)]
    return [table for table in found if table[2]]


def _settings_table(results: Results) -> Table:
    machine = results.machine
    rows = [[key, _text(value)] for key, value in machine.items()]
    names = {name for result in results.rows for name in result.times}
    rows += [[entry.name, entry.settings] for entry in ENTRIES if entry.name in names]
    return "Machine and settings", ["", ""], rows


def _checks_table(results: Results) -> Table:
    rows = [
        [c.model, c.name, str(c.beam), f"{c.same} of {c.of}", "" if c.worst is None else f"{c.worst:.1e}"]
        for c in results.checks
    ]
    header = ["model", "contender", "beam", "same tokens as tfexport fp32", "worst difference of log-probability"]
    return "Checked before timing", header, rows


def _times_table(title: str, results: Sequence[RowResult]) -> Table:
    names = list(dict.fromkeys(name for r in results for name in r.times))
    rows = [[r.row.label, *(_time(r, name) for name in names)] for r in results]
    return title, ["row", *names], rows


def _time(result: RowResult, name: str) -> str:
    if name not in result.times:
        return ""
    timing, least = result.times[name], result.figure(name)
    return f"{least:.2f} ({least * timing.median / timing.minimum:.2f})"


def _sentences_table(results: Sequence[RowResult]) -> Table:
    names = list(dict.fromkeys(name for r in results for name in r.times))
    rows = []
    for result in results:
        label = result.row.label if result.row.model == "base" else f"trained, {result.row.label}"
        speeds = _speeds(result)
        cells = [f"{speeds[name]:.1f}" if name in speeds else "" for name in names]
        rows.append([f"{label}, {_threads(result.row.threads)}", *cells])
    return "Sentences a second", ["row", *names], rows


def _ratios_table(found: Sequence[Ratio]) -> Table:
    rows = [
        [
            f"{r.peer} / {r.ours}",
            _threads(r.row.threads),
            r.row.label if r.row.model == "base" else f"trained, {r.row.label}",
            f"{r.median:.2f}",
            f"{r.lowest:.2f}-{r.highest:.2f}",
            "" if r.must is None else f"{r.must:g} / {r.goal:g}",
            r.verdict,
        ]
        for r in sorted(found, key=lambda r: (r.row.model, r.peer, r.ours))
    ]
    header = ["time of the peer / ours", "threads", "row", "median", "spread", "must / goal", "reached"]
    return "Ratios, round by round", header, rows


def _cold_table(found: Sequence[Cold]) -> Table:
    rows = []
    for cold in found:
        seconds = (cold.first_translation, cold.first_translation_median, cold.imports, cold.load)
        figures = ["" if s is None else f"{1e3 * s:.0f}" for s in seconds]
        rows.append([cold.name, *figures, f"{cold.peak_memory / 1e6:.0f}"])
    header = ["fresh process, 2 threads, 20 tokens", "ms to first text", "median", "ms imports", "ms load", "peak MB"]
    return "Cold start and memory", header, rows


def _sizes_table(found: Sequence[Size]) -> Table:
    return (
        "Bytes on disk",
        ["", "MB", "over the float32 weights"],
        [[s.name, f"{s.size / 1e6:.1f}", f"{s.share:.3f}"] for s in found],
    )


def _floors_table(found: Sequence[Floor]) -> Table:
    rows = [
        [
            f.name,
            str(f.threads),
            f"{f.bandwidth / 1e9:.1f}",
            f"{f.floor:.2f}",
            f"{f.step:.2f}",
            f"{f.floor / f.step:.2f}",
        ]
        for f in found
    ]
    header = ["B1 K1", "threads", "GB/s", "ms to read the weights", "ms a step", "share of the floor"]
    return "Memory bandwidth", header, rows


def _growth_table(found: Sequence[Growth]) -> Table:
    rows = [[g.name, f"{g.early:.2f}", str(g.cached), f"{g.late:.2f}", f"{g.ratio:.2f}"] for g in found]
    return "Growth of a step", ["", "ms at 16 cached", "cached", "ms there", "ratio (limit 1.5)"], rows


def _small_table(found: Sequence[SmallEnd]) -> Table:
    rows = []
    for end in found:
        speeds = [f"{speed:.1f} ({1e3 / speed:.2f})" for speed in (end.peer_speed, end.speed)]
        spread = f"{end.lowest:.2f}-{end.highest:.2f}"
        target = "" if end.must is None else f"{end.must:g} / {end.goal:g}"
        rows.append([end.how, end.peer, end.ours, str(end.sentences), *speeds, f"{end.ratio:.2f}", spread, target])
    who = ["peer", "ours", "sentences", "sentences/s (ms) of the peer", "of ours"]
    header = ["one core", *who, "ratio", "spread", "must / goal"]
    return "Small end: 6 + 2 layers, d_model 256, FFN 1536, 32,000 tokens", header, rows


def _markdown(results: Results) -> str:
    parts = ["# Results", "", "Written by `python -m benchmarks`; what the rows mean: [README](../README.md).", ""]
    for title, header, rows in tables(results):
        parts += [f"## {title}", "", _markdown_row(header), _markdown_row(["---"] * len(header))]
        parts += [_markdown_row(row) for row in rows] + [""]
    return "\n".join(parts)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _threads(count: int) -> str:
    return f"{count} thread{'s'[: count > 1]}"


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
