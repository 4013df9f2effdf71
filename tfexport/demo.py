"""The whole path on a task that needs no data: dates as people write them, to ISO 8601."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import tfexport_train
from tfexport.export import ExportOptions, export_bundle
from tfexport.parity import ParityReport
from tfexport.verify import VerifyOptions, verify_bundle
from tfexport_runtime.bundle import read_bundle
from tfexport_runtime.translator import Translator
from tfexport_train.checkpoint import load_checkpoint
from tfexport_train.corpus import TextPair, load_corpus
from tfexport_train.progress import Report, report_for
from tfexport_train.settings import TrainSettings, load_settings
from tfexport_train.trainer import train

EXAMPLES = 8
TIMED = 200  # dates translated one by one for the latency
VERIFIED = 200  # dates whose tokens are compared with PyTorch's


@dataclass(frozen=True)
class Example:
    source: str
    translation: str
    expected: str


@dataclass(frozen=True)
class Outcome:
    """What the bundle does with dates that it never saw."""

    unseen: int
    exact_match: float  # per cent of them
    latency: float  # milliseconds for one date alone, median
    dates_per_second: float  # all of them in one call
    examples: tuple[Example, ...]


@dataclass(frozen=True)
class DemoReport:
    bundle: Path
    size: int  # bytes of the bundle
    parameters: int
    parity: ParityReport
    outcome: Outcome
    seconds: dict[str, float]  # by stage

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "bundle": str(self.bundle), "parity": self.parity.to_dict()}


def run_demo(output: Path, report: Report | None = None) -> DemoReport:
    """Trains, exports, verifies and translates, all below `output`. Raises TfexportError, KeyboardInterrupt."""
    clock = _Clock(report or report_for())
    settings, path = demo_settings(output), output / "bundle"
    with clock.stage("train"):
        result = train(settings, overwrite=True, report=clock.report)
        if result.interrupted:
            raise KeyboardInterrupt
        checkpoint = load_checkpoint(result.checkpoint)
    with clock.stage("export"):
        exported = export_bundle(checkpoint, path, ExportOptions(name="dates to ISO 8601"))
    unseen = load_corpus(settings.data).test
    with clock.stage("verify"):
        texts = [source for source, _ in unseen[:VERIFIED]]
        parity = verify_bundle(read_bundle(path), checkpoint, VerifyOptions(texts=texts))
    with clock.stage("translate"):
        outcome = translate_unseen(Translator(path), unseen)
    return DemoReport(path, exported.bytes, exported.manifest.model.parameters, parity, outcome, clock.seconds)


def demo_settings(output: Path) -> TrainSettings:
    """train/configs/dates.yaml with another output folder."""
    return replace(load_settings(config_file("dates.yaml")), output=output)


def config_file(name: str) -> Path:
    """A file of train/configs: inside the package where that is installed, beside it in a checkout."""
    package = Path(tfexport_train.__file__).parent
    inside = package / "configs" / name
    return inside if inside.exists() else package.parent / "configs" / name


def translate_unseen(translator: Translator, pairs: Sequence[TextPair]) -> Outcome:
    """Quality and speed on (source, expected) pairs."""
    sources = [source for source, _ in pairs]
    start = time.perf_counter()
    texts = [translation.text for translation in translator.translate(sources)]
    seconds = time.perf_counter() - start
    right = sum(text == expected for text, (_, expected) in zip(texts, pairs, strict=True))
    return Outcome(
        unseen=len(pairs),
        exact_match=100 * right / len(pairs),
        latency=statistics.median(_alone(translator, source) for source in sources[:TIMED]),
        dates_per_second=len(pairs) / seconds,
        examples=_varied_examples(texts, pairs),
    )


def _alone(translator: Translator, source: str) -> float:
    start = time.perf_counter()
    translator.translate([source])
    return 1e3 * (time.perf_counter() - start)


def _varied_examples(texts: Sequence[str], pairs: Sequence[TextPair]) -> tuple[Example, ...]:
    """Spread over the lengths, so that different ways of writing are seen."""
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]))
    count = min(EXAMPLES, len(order))
    chosen = [order[i * (len(order) - 1) // max(count - 1, 1)] for i in range(count)]
    return tuple(Example(pairs[i][0], texts[i], pairs[i][1]) for i in chosen)


@dataclass
class _Clock:
    """Says which stage begins and keeps how long each took."""

    report: Report
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.report.message(f"{name} ...")
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start
