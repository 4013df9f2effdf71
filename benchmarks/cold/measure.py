"""From the start of a process to its first translation, and the memory it takes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.arena import environment
from benchmarks.errors import BenchmarkError
from benchmarks.materials import Workshop
from benchmarks.places import CPP_PROGRAM, ROOT
from benchmarks.roster import BY_NAME, CPP_COMMAND, Entry

TOKENS = 20  # forced, so that everybody does as much
SCRIPTS = {"bundle": "bundle_script.py", "ctranslate2_model": "ctranslate2_script.py"}
FORCED = ("--beam-size", "1", "--min-length", str(TOKENS), "--max-length", str(TOKENS), "--max-length-ratio", "inf")


@dataclass(frozen=True)
class Cold:
    """Seconds and bytes of fresh processes; the files lie in the system's cache."""

    name: str
    first_translation: float  # from exec to the line of text, minimum
    first_translation_median: float
    load: float | None  # opening the model alone, minimum; None: a program that does not tell
    imports: float | None
    peak_memory: int  # resident, largest


def measure_cold(names: Sequence[str], workshop: Workshop, text: str, tokens: str, rounds: int) -> list[Cold]:
    """In turn. `tokens` is the text for those without a tokenizer."""
    commands = {name: _command(BY_NAME[name], workshop) for name in names}
    found: dict[str, list[dict[str, float | None]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            entry = BY_NAME[name]
            found[name].append(_once(entry, commands[name], tokens if entry.is_peer else text))
    return [_summary(name, runs) for name, runs in found.items()]


def _command(entry: Entry, workshop: Workshop) -> list[str]:
    if entry == CPP_COMMAND:
        return [str(CPP_PROGRAM), str(workshop.material(entry.material)), "--threads", "2", *FORCED]
    python = workshop.peers if entry.is_peer else Path(sys.executable)
    script = ROOT / "benchmarks" / "cold" / SCRIPTS[entry.module]
    model = workshop.material(entry.material)
    extra = [entry.material.partition("-")[2]] if entry.is_peer else []
    return [str(python), str(script), str(model / "model" if entry.is_peer else model), "2", str(TOKENS), *extra]


def _once(entry: Entry, command: Sequence[str], line: str) -> dict[str, float | None]:
    seconds, rest = _run(entry, command, line)
    if entry == CPP_COMMAND:  # tells nothing of itself: a second run under a watch
        _, rest = _run(entry, [sys.executable, str(ROOT / "benchmarks" / "cold" / "watch_script.py"), *command], line)
    return {"first": seconds, **json.loads(rest)}


def _run(entry: Entry, command: Sequence[str], line: str) -> tuple[float, str]:
    """Seconds to the first line of output, and what followed it."""
    start = time.perf_counter()
    with subprocess.Popen(
        command,
        env=environment(entry, 2),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(line + "\n")
        process.stdin.close()
        process.stdout.readline()
        seconds = time.perf_counter() - start
        rest = process.stdout.read()
        errors = process.stderr.read()
    if process.returncode:
        raise BenchmarkError(f"{entry.name}, cold start: {(errors.strip().splitlines() or ['failed'])[-1]}")
    return seconds, rest


def _summary(name: str, runs: Sequence[dict[str, float | None]]) -> Cold:
    told = {key: [value for run in runs if (value := run[key]) is not None] for key in runs[0]}
    load, imports = (min(told[key], default=None) for key in ("load", "import"))
    return Cold(name, min(told["first"]), statistics.median(told["first"]), load, imports, int(max(told["peak"])))
