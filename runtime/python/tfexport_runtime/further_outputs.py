"""What a bundle gives on request of its export: what tokens look at, the encoder's states. See SPEC.md, section 3.

Letters: R rows, T tokens, S source length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tfexport_runtime.errors import OptionError
from tfexport_runtime.hypothesis import Decoded
from tfexport_runtime.step_model import FloatArray, IntArray, Target


@runtime_checkable
class FurtherModel(Protocol):
    """The graphs of a bundle, whatever runs them."""

    attention_names: tuple[str, ...]  # of outputs; empty: the bundle was exported without

    def encoder_states(self, source: Sequence[int]) -> FloatArray:
        """[S, d_model]. Raises OptionError where the bundle was exported without."""


@runtime_checkable
class AttentionModel(FurtherModel, Protocol):
    """A StepModel among them, whose steps can give what they look at."""

    def start(self, sources: Sequence[Sequence[int]], beam_size: int) -> Any:
        """As of every StepModel."""

    def step_attention(self, tokens: IntArray, cache: Any) -> tuple[list[FloatArray], Any]:
        """tokens [R]. Of each output what each row looks at, [R, heads, S]."""


def check_attention(model: object) -> None:
    """Raises OptionError for one that does not give it."""
    if not isinstance(model, FurtherModel) or not model.attention_names:
        raise OptionError("this bundle does not give attention; export it with --with attention")


def with_attention(
    model: AttentionModel, source: Sequence[int], hypotheses: Sequence[Decoded], target: Target
) -> list[Decoded]:
    """The hypotheses of one source, which are read once more for it: by output [T, heads, S], T as of token_scores."""
    first = len(target.prefix_ids)
    ends = [first + len(hypothesis.token_scores) for hypothesis in hypotheses]
    tokens = np.full((max(1, *ends), len(ends)), target.eos_id)
    for row, (hypothesis, end) in enumerate(zip(hypotheses, ends, strict=True)):
        tokens[:end, row] = (target.start_id, *target.prefix_ids, *hypothesis.ids)[:end]
    cache, steps = model.start([source], len(hypotheses)), []
    for newest in tokens:
        found, cache = model.step_attention(newest, cache)
        steps.append([weights[..., : len(source)].copy() for weights in found])
    seen = [np.stack(weights) for weights in zip(*steps, strict=True)]  # each [T, R, heads, S]
    return [
        replace(h, attention={name: w[first:end, row] for name, w in zip(model.attention_names, seen, strict=True)})
        for row, (h, end) in enumerate(zip(hypotheses, ends, strict=True))
    ]
