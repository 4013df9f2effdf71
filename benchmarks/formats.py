"""`python -m benchmarks.formats --checkpoint CKPT --text FILE`: one model in every format, side by side.

One core. Size, load and memory of a fresh process, milliseconds a decoding step of single sentences, and how many
sentences get other tokens than from the default bundle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.arena import Arena, Worker, environment
from benchmarks.errors import BenchmarkError
from benchmarks.places import CACHE, ROOT
from benchmarks.roster import Entry
from benchmarks.texts import lines
from benchmarks.work import Work

DEFAULT = "onnx"
FORMS: Mapping[str, tuple[str, ...]] = {
    DEFAULT: (),
    "onnx, portable": ("--ops", "portable"),
    "onnx, static": ("--static", "source=64,target=64,rows=4"),
    "ort": ("--format", "ort"),
    "single": ("--format", "single"),
    "torchscript": ("--format", "torchscript"),
    "torch-export": ("--format", "torch-export"),
    "aoti": ("--format", "aoti"),
    "executorch": ("--format", "executorch"),
}
TIMED = 40  # sentences of a turn, one by one
BEAMS = (1, 4)


@dataclass(frozen=True)
class FormatResult:
    """Seconds, bytes and milliseconds; by beam size where there are several."""

    name: str
    bytes: int
    load: float
    peak_memory: int
    step: Mapping[int, float]  # milliseconds a decoding step, best round
    slower: Mapping[int, float]  # times the default's, median of the rounds
    other_tokens: Mapping[int, int]  # sentences


def measure_formats(
    bundles: Mapping[str, Path], texts: Sequence[str], tokens: int | None, rounds: int, say: Callable[[str], None]
) -> list[FormatResult]:
    """The first bundle is what the others are compared with. tokens: of every translation; None: as the model ends."""
    work = {k: Work(tuple(texts), k, tokens, 1) for k in BEAMS}
    entries = {name: Entry(name, "any_format", "", "text in, text out", is_peer=False) for name in bundles}
    starts = {name: _cold_start(entries[name], path, texts[0]) for name, path in bundles.items()}
    with Arena([Worker(entries[n], Path(sys.executable), path, 1) for n, path in bundles.items()]) as arena:
        outputs = {name: {k: _ids(arena.workers[name], work[k]) for k in BEAMS} for name in bundles}
        seconds = {k: _timed(arena, replace(work[k], texts=work[k].texts[:TIMED]), rounds) for k in BEAMS}
    results = []
    for name, path in bundles.items():
        say(name)
        first = outputs[next(iter(bundles))]
        # The step that gives `eos` counts; a translation of a given length has none.
        steps = {k: sum(len(ids) + (tokens is None) for ids in outputs[name][k][:TIMED]) for k in BEAMS}
        pairs = {k: list(zip(seconds[k][name], next(iter(seconds[k].values())), strict=True)) for k in BEAMS}
        results.append(
            FormatResult(
                name,
                sum(file.stat().st_size for file in path.iterdir()),
                starts[name]["load_seconds"],
                int(starts[name]["peak_memory"]),
                {k: min(seconds[k][name]) / steps[k] * 1e3 for k in BEAMS},
                {k: statistics.median(a / b for a, b in pairs[k]) for k in BEAMS},
                {k: sum(a != b for a, b in zip(outputs[name][k], first[k], strict=True)) for k in BEAMS},
            )
        )
    return results


def table(results: Sequence[FormatResult], sentences: int) -> str:
    """Markdown."""
    rows = [
        "| | bundle | load | memory | greedy, ms a step | beam 4, ms a step | "
        f"other tokens of {sentences}, greedy / beam 4 |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for r in results:
        step = [f"{r.step[k]:.2f} ({r.slower[k]:.1f}×)" for k in BEAMS]
        other = " / ".join(str(r.other_tokens[k]) for k in BEAMS)
        memory = f"{r.peak_memory / 2**20:.0f} MiB"
        rows.append(
            f"| {r.name} | {r.bytes / 1e6:.1f} MB | {r.load:.2f} s | {memory} | {step[0]} | {step[1]} | {other} |"
        )
    return "\n".join(rows) + "\n"


def _cold_start(entry: Entry, bundle: Path, text: str) -> Mapping[str, float]:
    command = [sys.executable, "-m", "tfexport.cold_start", str(bundle), "1"]
    runs = []
    for _ in range(3):
        done = subprocess.run(
            command, input=text, env=environment(entry, 1), cwd=ROOT, capture_output=True, encoding="utf-8", check=False
        )
        if done.returncode:
            raise BenchmarkError(f"{entry.name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    fastest: Mapping[str, float] = min(runs, key=lambda run: run["load_seconds"])
    return fastest


def _ids(worker: Worker, work: Work) -> list[list[int]]:
    ids: list[list[int]] = worker.ask({"do": "run", "work": asdict(work)})["ids"]
    return ids


def _timed(arena: Arena, work: Work, rounds: int) -> Mapping[str, list[float]]:
    order = {"do": "time", "work": asdict(work), "seconds": 0.0}
    answers = arena.take_turns(list(arena.workers), order, rounds)
    return {name: [min(turn["seconds"]) for turn in turns] for name, turns in answers.items()}


def _export(checkpoint: Path, names: Sequence[str], cache: Path) -> dict[str, Path]:
    bundles = {}
    for name in names:
        target = cache / checkpoint.stem / name.replace(", ", "-")
        if not target.exists():
            _say(f"exporting {name} ...")
            command = [sys.executable, "-m", "tfexport", "export", str(checkpoint), "-o", str(target), *FORMS[name]]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
            if done.returncode:
                _say(f"{name} is left out: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
                continue
        bundles[name] = target
    return bundles


def _say(message: str) -> None:
    sys.stderr.write(message + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats", description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True, help="of the model")
    parser.add_argument("--text", type=Path, required=True, help="source text, one sentence a line")
    parser.add_argument("--sentences", type=int, default=200, help="how many of them; 200 if not given")
    parser.add_argument("--tokens", type=int, help="of every translation, for weights that are not trained")
    parser.add_argument("--formats", nargs="+", choices=list(FORMS), default=list(FORMS), help="all if not given")
    parser.add_argument("--rounds", type=int, default=3, help="3 if not given")
    parser.add_argument("--cache", type=Path, default=CACHE / "formats", help="where bundles are kept between runs")
    found = parser.parse_args()
    names = list(dict.fromkeys((DEFAULT, *found.formats)))
    texts = lines(found.text, found.sentences)
    bundles = _export(found.checkpoint.resolve(), names, found.cache)
    sys.stdout.write(table(measure_formats(bundles, texts, found.tokens, found.rounds, _say), len(texts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
