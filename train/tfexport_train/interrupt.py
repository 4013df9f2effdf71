"""Ctrl-C between two updates instead of within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interrupt:
    """True once the user asked to stop."""

    asked: bool = False

    def __bool__(self) -> bool:
        return self.asked

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The first signal asks to stop at the next update; a second one stops at once."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """SIGINT and SIGTERM set the flag. Other threads than the main one cannot take signals and never see it set."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, interrupt.handle) for number in signals]
    try:
        yield interrupt
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
