"""How the sum of log-probabilities of a hypothesis becomes its score. See SPEC.md, "Length penalty"."""

from __future__ import annotations

from collections.abc import Callable

from tfexport_runtime.options import TranslationOptions

LengthPenalty = Callable[[float, int], float]
"""(sum of log-probabilities, length in tokens with `eos`) -> score. Monotone in the length."""


def length_penalty(options: TranslationOptions) -> LengthPenalty:
    alpha, offset, reward = options.alpha, options.length_offset, options.word_reward
    penalties: dict[str, LengthPenalty] = {
        "none": lambda total, length: total,
        "average": lambda total, length: total / (length + offset) ** alpha,
        "gnmt": lambda total, length: total / ((5 + length) / 6) ** alpha,  # Wu et al. 2016, equation 14
        "word_reward": lambda total, length: total + reward * length,
    }
    return penalties[options.length_penalty]
