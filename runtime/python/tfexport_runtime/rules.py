"""Rules on tokens: what they do to the logits of one row before the softmax. See SPEC.md, "Rules on tokens"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.step_model import FloatArray, Target


def needs_all_logits(options: TranslationOptions) -> bool:
    """True when a rule depends on what a row has generated, so that a bias common to all rows cannot express it."""
    return options.no_repeat_ngram_size > 0 or options.repetition_penalty != 1 or options.prefix_strength != 1


def common_bias(options: TranslationOptions, target: Target, generated: int) -> FloatArray:
    """-inf on the tokens that no row may generate now, 0 elsewhere. [V]"""
    bias = np.zeros(target.vocab_size, np.float32)
    bias[list(target.never_generated)] = -np.inf
    bias[list(options.suppress_tokens)] = -np.inf
    if generated < options.min_length:
        bias[target.eos_id] = -np.inf
    return bias


def apply_rules(
    logits: FloatArray, history: Sequence[int], bias: FloatArray, options: TranslationOptions, target: Target
) -> FloatArray:
    """The logits [V] of one row after all rules, in the order of the specification. `history` has the prefix."""
    logits = logits.copy()
    if options.repetition_penalty != 1 and history:
        seen = np.unique(history)
        penalty = np.float32(options.repetition_penalty)
        logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
    blocked = [t for t in repeating_tokens(history, options.no_repeat_ngram_size) if t != target.eos_id]
    logits[blocked] = -np.inf
    logits += bias
    if logits.max() == -np.inf:
        logits[target.eos_id] = 0.0  # everything is forbidden: the hypothesis ends
    return logits


def repeating_tokens(history: Sequence[int], size: int) -> set[int]:
    """The tokens that would complete an n-gram of that size which the history holds already."""
    if size == 0 or len(history) < size:
        return set()
    last = tuple(history[len(history) - size + 1 :])
    starts = range(len(history) - size + 1)
    return {history[i + size - 1] for i in starts if tuple(history[i : i + size - 1]) == last}


def log_softmax(logits: FloatArray) -> FloatArray:
    """Over the last axis, natural logarithm, float32."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True, dtype=np.float32))
    return result


def mix_prefix(log_probs: FloatArray, wanted: int, strength: float) -> FloatArray:
    """log((1 - strength) * p + strength * [token is wanted]): a soft prefix. [V]"""
    mixed: FloatArray = log_probs + np.float32(np.log1p(-strength))
    mixed[wanted] = min(0.0, np.logaddexp(mixed[wanted], np.float32(np.log(strength))))
    return mixed
