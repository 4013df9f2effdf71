"""What a person sees of a run: a bar on a terminal, a plain line now and then elsewhere. All of it on stderr."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

PLAIN_EVERY = 30.0  # seconds between plain lines


@dataclass(frozen=True)
class StepReport:
    """How the last updates went."""

    step: int
    fraction: float  # of the run, 0 to 1, by steps or by time, whichever is nearer to its end
    loss: float  # nats a target token
    tokens_per_second: float  # target tokens
    seconds_left: float | None


class Report(Protocol):
    """Receives what happens in a run."""

    def message(self, text: str) -> None:
        """Something that is worth a line."""

    def step(self, report: StepReport) -> None:
        """After every update."""

    def close(self) -> None:
        """The run is over."""


class SilentReport:
    def message(self, text: str) -> None:
        pass

    def step(self, report: StepReport) -> None:
        pass

    def close(self) -> None:
        pass


class PlainReport:
    """Lines for a log file."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = time.monotonic() + PLAIN_EVERY

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def step(self, report: StepReport) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PLAIN_EVERY
            self.message(f"{100 * report.fraction:3.0f} %  {_described(report)}")

    def close(self) -> None:
        pass


class BarReport:
    """A rich progress bar; messages scroll above it."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream)
        self._bar: RichProgress | None = None

    def message(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def step(self, report: StepReport) -> None:
        if self._bar is None:
            self._bar = self._started()
        self._bar.update(self._bar.task_ids[0], completed=report.fraction, description=_described(report))

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _started(self) -> RichProgress:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f} %  {task.description}"))
        bar = Progress(*columns, console=self._console, refresh_per_second=4)
        bar.add_task("", total=1.0)
        bar.start()
        return bar


def report_for(stream: TextIO | None = None) -> Report:
    """A bar when the stream (stderr) is a terminal, else plain lines."""
    stream = stream or sys.stderr
    return BarReport(stream) if stream.isatty() else PlainReport(stream)


def _described(report: StepReport) -> str:
    left = f", {_duration(report.seconds_left)} left" if report.seconds_left is not None else ""
    return f"step {report.step}, loss {report.loss:.3f}, {report.tokens_per_second:,.0f} tokens/s{left}"


def _duration(seconds: float) -> str:
    whole = max(round(seconds), 0)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
