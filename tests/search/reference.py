"""Chapter 4 of SPEC.md for one sentence: plain, slow, without batches, caches or cleverness.

It was written from the specification alone and shares no code with the runtime, so that the two check each other.
The model is a function from the tokens so far (the ids of the manifest's target prefix, a hard prefix and what was
generated; without the start token) to the logits of the next token, float32 [V]; it is called anew for every hypothesis
at every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from tfexport_runtime.options import TranslationOptions

Logits = Callable[[tuple[int, ...]], np.ndarray]
Cancel = Callable[[int, tuple[int, ...], float], bool]  # step, ids of the best hypothesis so far, its sum
MASK64 = 2**64 - 1


def log_softmax(z: np.ndarray) -> np.ndarray:
    """float32 [V]; computed in float64 and rounded once."""
    shifted = z.astype(np.float64) - float(z.max())
    return (shifted - np.log(np.exp(shifted).sum())).astype(np.float32)


@dataclass(frozen=True)
class Problem:
    """One sentence and what the manifest says about the target side."""

    logits: Logits
    eos_id: int
    never_generated: tuple[int, ...]
    max_target_length: int
    source: tuple[int, ...]  # as the encoder reads it
    prefix: tuple[int, ...] = ()
    prefix_ids: tuple[int, ...] = ()  # what the manifest puts before every hypothesis
    log_softmax: Callable[[np.ndarray], np.ndarray] = log_softmax  # in float32, another rounds otherwise
    gaps: list[float] = field(default_factory=list)  # is filled: how far apart those were that had to be ordered


@dataclass(frozen=True)
class Hypothesis:
    tokens: tuple[int, ...]  # prefix and generated tokens, `eos` included while it is still among them
    token_scores: tuple[float, ...]
    total: float
    counted: int  # generated tokens, a hard prefix not

    def grown(self, token: int, score: float, total: float, counts: bool = True) -> Hypothesis:
        return Hypothesis((*self.tokens, token), (*self.token_scores, score), total, self.counted + counts)


@dataclass(frozen=True)
class Result:
    ids: tuple[int, ...]
    token_scores: tuple[float, ...]
    total: float
    score: float
    finish_reason: str


@dataclass
class Kept:
    """Finished hypotheses, best first; of equal ones the earlier first."""

    size: int
    gaps: list[float]
    entries: list[tuple[float, Hypothesis]] = field(default_factory=list)

    def add(self, score: float, hypothesis: Hypothesis) -> None:
        self.gaps.extend(abs(score - other) for other, _ in self.entries)
        self.entries = sorted([*self.entries, (score, hypothesis)], key=lambda entry: -entry[0])[: self.size]

    @property
    def full(self) -> bool:
        return len(self.entries) == self.size


def search(problem: Problem, options: TranslationOptions, cancel: Cancel | None = None) -> list[Result]:
    """Beam search and greedy search: the returned hypotheses of the sentence, best first."""
    return _decode(problem, options, 0, cancel)[: options.n_best]


def sample(problem: Problem, options: TranslationOptions, index: int, cancel: Cancel | None = None) -> Result:
    """4.6: one of the n_best samples of the sentence."""
    return _decode(problem, options, index, cancel)[0]


def _decode(problem: Problem, options: TranslationOptions, index: int, cancel: Cancel | None) -> list[Result]:
    size, limit = options.beam_size, length_limit(problem, options)
    given = hard_prefix(problem, options)
    live, kept = [Hypothesis((), (), 0.0, 0)], Kept(size, problem.gaps)
    step = 0
    while True:
        ended = False
        forced = step - len(problem.prefix_ids)
        if 0 <= forced < len(given):
            live = [live[0].grown(given[forced], 0.0, 0.0, counts=False)]
        elif forced >= 0:
            best = [draw(problem, options, live[0], index)] if options.sampling else ordered(problem, options, live)
            live = _advance(problem, options, best, kept)
            ended = _ended(options, live, kept, limit)
        if cancel is not None and cancel(step, *_best_so_far(live, kept, ended)) and not ended:
            return _results(options, live, kept, "cancelled")
        if ended:
            return _results(options, live, kept, "length")
        step += 1


def _advance(
    problem: Problem, options: TranslationOptions, candidates: list[Hypothesis], kept: Kept
) -> list[Hypothesis]:
    """4.1, 3 and 4: the next live beams; finished hypotheses go to `kept`."""
    live: list[Hypothesis] = []
    for rank, candidate in enumerate(candidates):
        if candidate.tokens[-1] == problem.eos_id:
            if rank < options.beam_size:
                kept.add(penalised(options, candidate.total, candidate.counted), candidate)
        elif len(live) < options.beam_size:
            live.append(candidate)
    return live


def _ended(options: TranslationOptions, live: list[Hypothesis], kept: Kept, limit: int) -> bool:
    """4.1, 5."""
    if not live or live[0].counted >= limit:
        return True
    if not kept.full:
        return False
    if options.beam_size == 1 or options.early_stopping:
        return True
    total, length = live[0].total, live[0].counted
    best_possible = max(penalised(options, total, length + 1), penalised(options, total, limit))
    return best_possible <= kept.entries[-1][0]


def _results(options: TranslationOptions, live: list[Hypothesis], kept: Kept, reason: str) -> list[Result]:
    finished = [Result(h.tokens[:-1], h.token_scores, h.total, score, "eos") for score, h in kept.entries]
    cut = [Result(h.tokens, h.token_scores, h.total, penalised(options, h.total, h.counted), reason) for h in live]
    cut.sort(key=lambda result: -result.score)
    return finished + cut[: options.beam_size - len(finished)]


def _best_so_far(live: list[Hypothesis], kept: Kept, ended: bool) -> tuple[tuple[int, ...], float]:
    """4.7."""
    if ended and kept.entries:
        best = kept.entries[0][1]
        return best.tokens[:-1], best.total
    return live[0].tokens, live[0].total


# 4.1, 1 and 2


def ordered(problem: Problem, options: TranslationOptions, live: list[Hypothesis]) -> list[Hypothesis]:
    """The possible next hypotheses that are looked at, best first."""
    entries = []
    for beam, hypothesis in enumerate(live):
        scores = log_probabilities(problem, options, hypothesis)
        for token, score in enumerate(scores):
            total = hypothesis.total + float(score)
            if total > -math.inf:
                entries.append((-total, beam, token, float(score)))
    best = sorted(entries)[: 2 * options.beam_size + 1]
    problem.gaps.extend(b[0] - a[0] for a, b in pairwise(best))
    looked_at = best[: 2 * options.beam_size]
    return [live[beam].grown(token, score, -negative) for negative, beam, token, score in looked_at]


# 4.2 and 4.5: rules on tokens


def hard_prefix(problem: Problem, options: TranslationOptions) -> tuple[int, ...]:
    return problem.prefix if options.prefix_strength == 1 else ()


def ruled(problem: Problem, options: TranslationOptions, hypothesis: Hypothesis) -> np.ndarray:
    """Logits after rules 1 to 5, float32 [V]."""
    history, eos = hypothesis.tokens, problem.eos_id
    z = np.array(problem.logits((*problem.prefix_ids, *history)), np.float32)
    penalty = np.float32(options.repetition_penalty)
    if options.repetition_penalty != 1:
        for token in set(history):
            z[token] = z[token] / penalty if z[token] > 0 else z[token] * penalty
    n = options.no_repeat_ngram_size
    if n > 0:
        seen = {history[i : i + n] for i in range(len(history) - n + 1)}
        last = history[len(history) - n + 1 :] if n > 1 else ()
        for token in range(len(z)):
            if token != eos and (*last, token) in seen:
                z[token] = -np.inf
    for token in (*problem.never_generated, *options.suppress_tokens):
        z[token] = -np.inf
    if hypothesis.counted < options.min_length:
        z[eos] = -np.inf
    if np.all(z == -np.inf):
        z[eos] = 0
    return z


def log_probabilities(problem: Problem, options: TranslationOptions, hypothesis: Hypothesis) -> np.ndarray:
    return with_soft_prefix(problem, options, hypothesis, problem.log_softmax(ruled(problem, options, hypothesis)))


def with_soft_prefix(
    problem: Problem, options: TranslationOptions, hypothesis: Hypothesis, scores: np.ndarray
) -> np.ndarray:
    strength, history, prefix = options.prefix_strength, hypothesis.tokens, problem.prefix
    if strength == 1 or len(history) >= len(prefix) or prefix[: len(history)] != history:
        return scores
    wanted = prefix[len(history)]
    mixed = scores.astype(np.float64) + math.log(1 - strength)
    mixed[wanted] = math.log((1 - strength) * math.exp(scores[wanted]) + strength)
    return mixed.astype(np.float32)


# 4.3 and 4.4


def penalised(options: TranslationOptions, total: float, n: int) -> float:
    if n == 0:
        return 0.0
    if options.length_penalty == "average":
        return total / (n + options.length_offset) ** options.alpha
    if options.length_penalty == "gnmt":
        return total / ((5 + n) / 6) ** options.alpha
    if options.length_penalty == "word_reward":
        return total + options.word_reward * n
    return total


def length_limit(problem: Problem, options: TranslationOptions) -> int:
    limits = [problem.max_target_length - len(problem.prefix_ids) - len(hard_prefix(problem, options))]
    if options.max_length is not None:
        limits.append(options.max_length)
    if options.max_length_ratio is not None:
        limits.append(math.floor(options.max_length_ratio * len(problem.source)) + options.max_length_extra)
    return min(limits)


# 4.6: sampling


def draw(problem: Problem, options: TranslationOptions, hypothesis: Hypothesis, sample: int) -> Hypothesis:
    z = ruled(problem, options, hypothesis)
    largest = max(float(value) for value in z)
    w = [math.exp((float(value) - largest) / options.temperature) for value in z]
    kept = sorted(range(len(z)), key=lambda token: (-z[token], token))
    if options.top_k > 0:
        kept = kept[: options.top_k]
    if options.top_p < 1:
        cumulative = list(accumulate(w[token] for token in kept))
        problem.gaps.extend(abs(c / cumulative[-1] - options.top_p) for c in cumulative)
        kept = kept[: 1 + next(j for j, c in enumerate(cumulative) if c >= options.top_p * cumulative[-1])]
    times = {
        token: -math.log(number(options.seed, hypothesis.counted, sample, fnv1a(problem.source), token))
        for token in kept
    }
    race = sorted((times[token] / w[token], token) for token in kept if w[token] > 0)
    problem.gaps.extend(abs(b / a - 1) for (a, _), (b, _) in pairwise(race[:2]))
    token = race[0][1]
    score = float(log_probabilities(problem, options, hypothesis)[token])
    return hypothesis.grown(token, score, hypothesis.total + score)


def number(seed: int, step: int, sample: int, sentence_hash: int, token: int) -> float:
    counter = (step, sample, sentence_hash & 0xFFFFFFFF, sentence_hash >> 32)
    a = philox4x32_10(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return (philox4x32_10((token // 4, 0, a[2], a[3]), a[:2])[token % 4] + 0.5) / 2**32


def philox4x32_10(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ k0,
            product1 & 0xFFFFFFFF,
            (product0 >> 32) ^ c3 ^ k1,
            product0 & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def fnv1a(ids: Sequence[int]) -> int:
    h = 14695981039346656037
    for token in ids:
        for byte in int(token).to_bytes(4, "little"):
            h = ((h ^ byte) * 1099511628211) & MASK64
    return h
