"""Which operators the time of a decoding step goes to, by ONNX Runtime's own profile."""

from __future__ import annotations

import gc
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfexport_runtime.errors import OptionError
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.session import SessionOptions
from tfexport_runtime.translator import Translator

BETWEEN = "(between operators)"


@dataclass(frozen=True)
class OperatorTime:
    """All nodes of one operator in a decoding step: medians over the steps. Profiling itself costs some time."""

    operator: str
    calls: int
    milliseconds: float
    share: float  # of the step, 0 to 1


def profile_step(path: Path, text: str, options: TranslationOptions, threads: int) -> tuple[OperatorTime, ...]:
    """Translates the text twice and looks at the second time; the longest operator first.

    Raises OptionError for a bundle without steps.
    """
    with tempfile.TemporaryDirectory() as folder:
        translator = Translator(path, SessionOptions(threads=threads, profile=str(Path(folder) / "profile")))
        if "decoder" not in translator.bundle.manifest.graphs:
            raise OptionError(f"{path}: holds the whole search in one graph, which has no step to profile")
        for _ in range(2):
            translator.translate([text], options)
        del translator
        gc.collect()  # a session writes its profile when it ends
        (file,) = Path(folder).glob("profile-decoder*.json")
        events = json.loads(file.read_text(encoding="utf-8"))
    return operator_times(events)


def operator_times(events: Sequence[Mapping[str, Any]]) -> tuple[OperatorTime, ...]:
    """The later half of the steps in a decoder's profile; the longest operator first."""
    steps = list(_steps(events))
    return _summary(steps[len(steps) // 2 :])


@dataclass(frozen=True)
class _Step:
    nodes: Sequence[tuple[str, float]]  # operator and microseconds
    total: float


def _steps(events: Sequence[Mapping[str, Any]]) -> Iterator[_Step]:
    """A run's nodes come first, then the run itself."""
    nodes: list[tuple[str, float]] = []
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            nodes.append((event["args"]["op_name"], event["dur"]))
        elif event.get("name") == "model_run":
            yield _Step(nodes, event["dur"])
            nodes = []


def _summary(steps: Sequence[_Step]) -> tuple[OperatorTime, ...]:
    total = statistics.median(step.total for step in steps)
    names = dict.fromkeys(name for step in steps for name, _ in step.nodes)
    sums = {name: statistics.median(sum(d for n, d in step.nodes if n == name) for step in steps) for name in names}
    calls = {name: sum(n == name for n, _ in steps[-1].nodes) for name in names}
    sums[BETWEEN] = max(0.0, statistics.median(step.total - sum(d for _, d in step.nodes) for step in steps))
    rows = [OperatorTime(name, calls.get(name, 0), us / 1e3, us / total) for name, us in sums.items()]
    return tuple(sorted(rows, key=lambda row: -row.milliseconds))
