"""Where the candidates of a step come from: the graph itself, the graph's logits under rules, or a draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

import numpy as np

from tfexport_runtime.hypothesis import SentenceSearch
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.random import Block, draw_block, exponential_times, fnv1a_64
from tfexport_runtime.rules import apply_rules, common_bias, log_softmax, mix_prefix, needs_all_logits
from tfexport_runtime.step_model import C, Candidates, FloatArray, IntArray, StepModel, Target


class Proposer(Protocol[C]):
    """The strategy that differs between ways of searching."""

    def propose(self, tokens: IntArray, cache: C, live: Sequence[SentenceSearch]) -> tuple[Candidates, C]:
        """One step for tokens [R] of the live sentences."""


def make_proposer(model: StepModel[C], options: TranslationOptions, target: Target) -> Proposer[C]:
    if options.sampling:
        return SampledCandidates(model, options, target)
    if needs_all_logits(options):
        return RuledCandidates(model, options, target)
    return GraphCandidates(model, options, target)


def candidate_count(options: TranslationOptions, target: Target) -> int:
    """K + 1 of each row: without `eos`, K live on."""
    return min(options.beam_size + 1, target.vocab_size)


class GraphCandidates(Generic[C]):
    """The fast way: the graph ranks the tokens, and only 2K a row leave it."""

    def __init__(self, model: StepModel[C], options: TranslationOptions, target: Target) -> None:
        self._model, self._options = model, options
        self._count = candidate_count(options, target)
        self._open = common_bias(options, target, options.min_length)
        self._without_eos = common_bias(options, target, 0)

    def propose(self, tokens: IntArray, cache: C, live: Sequence[SentenceSearch]) -> tuple[Candidates, C]:
        below = [s.generated < self._options.min_length for s in live]
        if all(below) or not any(below):
            return self._model.step(tokens, cache, self._without_eos if below[0] else self._open, self._count)
        # Prefixes of unequal length: some sentences may end and others may not.
        logits, cache = self._model.step_logits(tokens, cache)
        beams = len(tokens) // len(live)
        bias = np.where(np.repeat(below, beams)[:, None], self._without_eos, self._open)
        return best_candidates(log_softmax(logits + bias), self._count), cache


@dataclass(frozen=True)
class RuledCandidates(Generic[C]):
    """All logits come to the host, because a rule looks at what each row has generated."""

    model: StepModel[C]
    options: TranslationOptions
    target: Target

    def propose(self, tokens: IntArray, cache: C, live: Sequence[SentenceSearch]) -> tuple[Candidates, C]:
        logits, cache = self.model.step_logits(tokens, cache)
        log_probs = np.stack([self._row(*row) for row in _rows(logits, live)])
        return best_candidates(log_probs, candidate_count(self.options, self.target)), cache

    def _row(self, logits: FloatArray, sentence: SentenceSearch, beam: int) -> FloatArray:
        history = sentence.history(beam)
        bias = common_bias(self.options, self.target, sentence.generated)
        log_probs = log_softmax(apply_rules(logits, history, bias, self.options, self.target))
        prefix, done = sentence.request.prefix, len(history)
        if self.options.prefix_strength < 1 and done < len(prefix) and tuple(history) == prefix[:done]:
            log_probs = mix_prefix(log_probs, prefix[done], self.options.prefix_strength)
        return log_probs


@dataclass(frozen=True)
class SampledCandidates(Generic[C]):
    """One token a row, drawn from its distribution with the specified generator."""

    model: StepModel[C]
    options: TranslationOptions
    target: Target

    def propose(self, tokens: IntArray, cache: C, live: Sequence[SentenceSearch]) -> tuple[Candidates, C]:
        logits, cache = self.model.step_logits(tokens, cache)
        drawn = [self._draw(*row) for row in _rows(logits, live)]
        log_probs = np.array([[log_prob] for log_prob, _ in drawn], np.float32)
        return Candidates(log_probs, np.array([[token] for _, token in drawn], np.int64)), cache

    def _draw(self, logits: FloatArray, sentence: SentenceSearch, beam: int) -> tuple[float, int]:
        bias = common_bias(self.options, self.target, sentence.generated)
        ruled = apply_rules(logits, sentence.history(beam), bias, self.options, self.target)
        request = sentence.request
        block = draw_block(self.options.seed, sentence.generated, request.sample, fnv1a_64(request.source))
        token = draw_token(ruled, self.options, block)
        return float(log_softmax(ruled)[token]), token


def draw_token(logits: FloatArray, options: TranslationOptions, block: Block) -> int:
    """A token of the distribution after temperature, then top-k, then top-p: the first in a race of random times."""
    scaled = logits.astype(np.float64)
    weights = np.exp((scaled - scaled.max()) / options.temperature)
    if options.top_k or options.top_p < 1:
        order, kept = np.argsort(-logits, kind="stable"), options.top_k or len(logits)
        if options.top_p < 1:
            mass = np.cumsum(weights[order[:kept]])
            kept = int(np.searchsorted(mass, options.top_p * mass[-1])) + 1
        weights[order[kept:]] = 0
    with np.errstate(divide="ignore"):
        return int(np.argmin(exponential_times(block, len(weights)) / weights))


def best_candidates(log_probs: FloatArray, count: int) -> Candidates:
    """The `count` best of every row of [R, V], best first; of equals the lower id."""
    threshold = -np.partition(-log_probs, count - 1, axis=1)[:, count - 1]
    ids = np.empty((len(log_probs), count), np.int64)
    for row, (values, least) in enumerate(zip(log_probs, threshold, strict=True)):
        enough = np.flatnonzero(~(values < least))  # NaN stays in, so that the search finds it
        ids[row] = enough[np.argsort(-values[enough], kind="stable")[:count]]
    return Candidates(np.take_along_axis(log_probs, ids, axis=1), ids)


def _rows(logits: FloatArray, live: Sequence[SentenceSearch]) -> list[tuple[FloatArray, SentenceSearch, int]]:
    beams = len(logits) // len(live)
    return [(row, live[i // beams], i % beams) for i, row in enumerate(logits)]
