"""What a contender is asked to do, and what it must be able to do. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Work:
    """One job: text in, text out, timed as a whole."""

    texts: tuple[str, ...]
    beam_size: int
    tokens: int | None  # exactly so many for each sentence; None: until the model ends it
    batch_size: int | None = None  # sentences in one call; None: all texts at once, batched as the contender does best
    lengths: tuple[int, ...] | None = None  # tokens of each sentence, instead of one number for all
    exact: bool = False  # rule out what ours never generates, so that probabilities are the same; not for timing

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Work:
        lengths = tuple(values["lengths"]) if values["lengths"] else None
        return cls(**{**values, "texts": tuple(values["texts"]), "lengths": lengths})

    def batches(self) -> list[tuple[str, ...]]:
        return [self.texts[i : i + self.call_size] for i in range(0, len(self.texts), self.call_size)]

    @property
    def call_size(self) -> int:
        """Sentences in one call."""
        return self.batch_size or max(len(self.texts), 1)


@dataclass(frozen=True)
class Output:
    """The best translation of one text."""

    ids: tuple[int, ...]  # without `eos`
    log_probability: float | None  # sum over the tokens, where the contender tells


Job = Callable[[], Sequence[Output]]


class Contender(Protocol):
    """A loaded model. What `prepare` does is not timed, what the returned job does is."""

    def prepare(self, work: Work) -> Job: ...


class StepTimer(Protocol):
    """A contender that can tell when each decoding step of one sentence ended."""

    def step_ends(self, text: str, tokens: int) -> list[float]:
        """Seconds of a clock, one for each of `tokens` greedy steps."""
