"""What the search needs of a model, and what it is asked: the seam between the search and any engine.

Letters: B sentences, K beams, R = B*K rows, N candidates a row, V vocabulary. Row of beam k of sentence b: b*K + k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]


class Candidates(NamedTuple):
    """The best next tokens of every row, best first; of equals, the lower id first."""

    log_probs: FloatArray  # [R, N]
    ids: IntArray  # [R, N]


class Cache(Protocol):
    """What the model remembers of every row. A value: after `select` or a step, only the returned one is valid."""

    def select(self, rows: IntArray) -> Self:
        """rows [R']: the new row r continues the old row rows[r]. Rows of a sentence stay together."""


C = TypeVar("C", bound=Cache)


class StepModel(Protocol[C]):
    """A model that decodes step by step: a bundle in ONNX Runtime, or the PyTorch module."""

    def start(self, sources: Sequence[Sequence[int]], beam_size: int) -> C:
        """Encodes B sources and returns the cache of length 0 for B * beam_size rows."""

    def step(self, tokens: IntArray, cache: C, bias: FloatArray, count: int) -> tuple[Candidates, C]:
        """tokens [R], the newest of each row; bias [V] is added to the logits. Returns `count` candidates a row."""

    def step_logits(self, tokens: IntArray, cache: C) -> tuple[FloatArray, C]:
        """As `step`, but returns all logits [R, V] as the model gives them."""


@dataclass(frozen=True)
class Target:
    """What the search must know of the target vocabulary and the model."""

    vocab_size: int
    start_id: int
    eos_id: int
    never_generated: tuple[int, ...]
    max_length: int  # positions of the decoder: prefix and generated tokens together
    prefix_ids: tuple[int, ...] = ()  # what the decoder reads behind `start_id` in every search; part of no hypothesis


@dataclass(frozen=True)
class Request:
    """One sentence to decode."""

    source: tuple[int, ...]  # ids as the encoder reads them; not empty
    prefix: tuple[int, ...] = ()  # target ids that are given
    index: int = 0  # its place in the caller's list; callbacks name it
    sample: int = 0  # which of several samples of the sentence
