"""What a caller may ask of a translation: one frozen dataclass, checked in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from tfexport_runtime.errors import OptionError
from tfexport_runtime.step_model import Target

LengthPenaltyName = Literal["none", "average", "gnmt", "word_reward"]
LENGTH_PENALTIES: tuple[str, ...] = get_args(LengthPenaltyName)


@dataclass(frozen=True)
class Progress:
    """What a callback sees after each step of a sentence."""

    sentence: int  # index in the list that was given to translate
    sample: int  # which of several samples; 0 in beam search
    tokens: tuple[int, ...]  # ids of the best hypothesis so far
    score: float  # sum of its log-probabilities


@dataclass(frozen=True)
class TranslationOptions:
    """Semantics: SPEC.md, "Search". The defaults here are what a bundle without its own defaults gets."""

    # Search
    beam_size: int = 1  # 1 is greedy search
    n_best: int = 1  # hypotheses returned a sentence; at most beam_size unless sampling
    length_penalty: LengthPenaltyName = "average"  # how the sum of log-probabilities becomes a score
    alpha: float = 1.0  # exponent of `average` and `gnmt`; 0 makes them `none`
    length_offset: int = 0  # `average` only: added to the length (1 counts the start token)
    word_reward: float = 0.0  # `word_reward` only: added to the score for each token
    early_stopping: bool = False  # stop at beam_size finished hypotheses, without proof that none better can follow

    # Length of the output in tokens, `eos` included, a hard prefix not
    min_length: int = 0  # `eos` is not allowed before this many other tokens
    max_length: int | None = None  # absolute; None: only the ratio and the model limit
    max_length_ratio: float | None = 2.0  # times source tokens plus max_length_extra; None: no such limit
    max_length_extra: int = 50

    # Sampling, instead of beam search
    sampling: bool = False  # draw tokens; n_best draws that many independent samples
    temperature: float = 1.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0  # 1: all
    seed: int = 0

    # Rules on tokens
    no_repeat_ngram_size: int = 0  # 0: off; never blocks `eos`
    repetition_penalty: float = 1.0  # 1: off
    suppress_tokens: tuple[int, ...] = ()  # ids that are never generated, beside those of the manifest
    prefix_strength: float = 1.0  # target prefix: 1 forces it, smaller values mix it with the model's distribution

    # Work
    truncate_source: bool = False  # cut a source that is too long, with a warning, instead of refusing it
    max_batch_tokens: int = 2048  # source tokens decoded together, padding and beams counted
    callback: Callable[[Progress], bool | None] | None = None  # called after every step; True cancels the sentence

    def with_changes(self, changes: Mapping[str, Any]) -> TranslationOptions:
        """Raises OptionError for names that do not exist."""
        unknown = sorted(set(changes) - {f.name for f in fields(self)})
        if unknown:
            raise OptionError(f"unknown generation option {', '.join(unknown)}")
        if "suppress_tokens" in changes:
            changes = {**changes, "suppress_tokens": tuple(changes["suppress_tokens"])}
        return replace(self, **changes)


def check_options(options: TranslationOptions, target: Target) -> None:
    """All contradictions at once, before any work. Raises OptionError."""
    problems = list(_contradictions(options, target.vocab_size)) or list(_nothing_left(options, target))
    if problems:
        raise OptionError("; ".join(problems))


def _contradictions(o: TranslationOptions, vocab_size: int) -> Sequence[str]:
    rules = [
        (o.beam_size >= 1, f"beam_size must be at least 1, not {o.beam_size}"),
        (o.n_best >= 1, f"n_best must be at least 1, not {o.n_best}"),
        (o.sampling or o.n_best <= o.beam_size, f"n_best {o.n_best} needs a beam_size of at least {o.n_best}"),
        (not o.sampling or o.beam_size == 1, "sampling and beam search exclude each other; leave beam_size at 1"),
        (
            o.length_penalty in LENGTH_PENALTIES,
            f"length_penalty must be one of {', '.join(LENGTH_PENALTIES)}, not {o.length_penalty!r}",
        ),
        (-10 <= o.alpha <= 10, f"alpha must be in [-10, 10], not {o.alpha}"),
        (-1e6 <= o.word_reward <= 1e6, f"word_reward must be in [-1e6, 1e6], not {o.word_reward}"),
        (o.length_offset >= 0, f"length_offset must not be negative, not {o.length_offset}"),
        (o.min_length >= 0, f"min_length must not be negative, not {o.min_length}"),
        (o.max_length is None or o.max_length >= 1, f"max_length must be at least 1, not {o.max_length}"),
        (
            o.max_length is None or o.min_length <= o.max_length,
            f"min_length {o.min_length} is above max_length {o.max_length}",
        ),
        (
            o.max_length_ratio is None or o.max_length_ratio >= 0,
            f"max_length_ratio must not be negative, not {o.max_length_ratio}",
        ),
        (o.max_length_extra >= 0, f"max_length_extra must not be negative, not {o.max_length_extra}"),
        (
            1e-9 <= o.temperature <= 1e9,
            f"temperature must be in [1e-9, 1e9], not {o.temperature}; for the best token use greedy search",
        ),
        (o.top_k >= 0, f"top_k must not be negative, not {o.top_k}"),
        (0 < o.top_p <= 1, f"top_p must be in (0, 1], not {o.top_p}"),
        (0 <= o.seed < 2**64, f"seed must be in [0, 2^64), not {o.seed}"),
        (o.no_repeat_ngram_size >= 0, f"no_repeat_ngram_size must not be negative, not {o.no_repeat_ngram_size}"),
        (
            1e-3 <= o.repetition_penalty <= 1e3,
            f"repetition_penalty must be in [0.001, 1000], not {o.repetition_penalty}",
        ),
        (
            all(0 <= t < vocab_size for t in o.suppress_tokens),
            f"suppress_tokens must be ids below the vocabulary size {vocab_size}",
        ),
        (0 < o.prefix_strength <= 1, f"prefix_strength must be in (0, 1], not {o.prefix_strength}"),
        (
            not o.sampling or o.prefix_strength == 1,
            "sampling and a soft prefix exclude each other; leave prefix_strength at 1",
        ),
        (o.max_batch_tokens >= 1, f"max_batch_tokens must be at least 1, not {o.max_batch_tokens}"),
    ]
    return [message for fine, message in rules if not fine]


def _nothing_left(o: TranslationOptions, target: Target) -> Sequence[str]:
    """A step must always find a token that it may generate."""
    forbidden = {*target.never_generated, *o.suppress_tokens} | ({target.eos_id} if o.min_length else set())
    left = target.vocab_size - len(forbidden)
    return [] if left else ["suppress_tokens, min_length and the bundle together leave no token to generate"]
