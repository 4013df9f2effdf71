"""The search: one loop for greedy, beam and sampling. See SPEC.md, "Search".

Letters: B sentences, K beams, R = B*K rows, N candidates a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tfexport_runtime.errors import TfexportError
from tfexport_runtime.hypothesis import Decoded, SentenceSearch
from tfexport_runtime.options import Progress, TranslationOptions
from tfexport_runtime.proposers import make_proposer
from tfexport_runtime.step_model import Candidates, IntArray, Request, StepModel, Target


class ModelOutputError(TfexportError):
    """The model gave something that is not a number."""

    exit_status = 1


@runtime_checkable
class WholeSearch(Protocol):
    """A model that searches by itself, in the place of one that decodes step by step."""

    def search(self, requests: Sequence[Request], options: TranslationOptions, target: Target) -> list[list[Decoded]]:
        """As the function `search`. Raises OptionError for options that it does not have."""


Model = StepModel[Any] | WholeSearch


def search(
    model: Model, requests: Sequence[Request], options: TranslationOptions, target: Target
) -> list[list[Decoded]]:
    """Decodes all requests together; for each the hypotheses, best first. The options are checked already."""
    if isinstance(model, WholeSearch):
        return model.search(requests, options, target)
    sentences = [SentenceSearch(request, options, target) for request in requests]
    proposer = make_proposer(model, options, target)
    live = list(sentences)
    cache = model.start([s.request.source for s in live], options.beam_size)
    while live:
        tokens = np.array([token for s in live for token in s.tokens()], np.int64)
        candidates, cache = proposer.propose(tokens, cache, live)
        parents = _advance(live, candidates)
        _report(live, options)
        live, slots = _without_finished(live)
        if live:
            cache = cache.select(_rows(parents, slots))
    return [s.result() for s in sentences]


def _advance(live: Sequence[SentenceSearch], candidates: Candidates) -> list[list[int]]:
    """Ranks the candidates of every sentence and moves it one token on. Returns K parent beams of each."""
    rows, count = candidates.ids.shape
    sums = np.array([s.sums for s in live])  # float64 [B, K]
    beams = rows // len(live)
    totals = (sums.reshape(rows, 1) + candidates.log_probs).reshape(len(live), beams * count)
    if math.isnan(totals.sum()):  # none is +infinity
        bad = live[int(np.isnan(totals).any(axis=1).argmax())].request.index
        raise ModelOutputError(f"the decoder gave NaN for sentence {bad + 1}; verify the bundle with `tfexport verify`")
    # Stable: of equal totals the lower beam stays first, and in it the lower id.
    order = np.argsort(-totals, axis=1, kind="stable")[:, : 2 * beams]
    chosen = order + np.arange(len(live))[:, None] * (beams * count)
    return [
        sentence.advance(from_beam, ids, log_probs, sums_after)
        for sentence, from_beam, ids, log_probs, sums_after in zip(
            live,
            (order // count).tolist(),
            candidates.ids.reshape(-1)[chosen].tolist(),
            candidates.log_probs.reshape(-1)[chosen].tolist(),
            totals.reshape(-1)[chosen].tolist(),
            strict=True,
        )
    ]


def _report(live: Sequence[SentenceSearch], options: TranslationOptions) -> None:
    if options.callback is None:
        return
    for sentence in live:
        tokens, total = sentence.best_so_far()
        progress = Progress(sentence.request.index, sentence.request.sample, tokens, total)
        if options.callback(progress):
            sentence.cancel()


def _without_finished(live: list[SentenceSearch]) -> tuple[list[SentenceSearch], list[int]]:
    """The unfinished sentences, and the old place of each. The last ones fill the gaps: little of the cache moves."""
    places = [i for i, s in enumerate(live) if not s.done]
    keep = len(places)
    moved = iter(reversed(places))
    slots = [i if i < len(live) and not live[i].done else next(moved) for i in range(keep)]
    return [live[i] for i in slots], slots


def _rows(parents: Sequence[Sequence[int]], slots: Sequence[int]) -> IntArray:
    """Old row of every new row, [R']."""
    beams = len(parents[0])
    return np.array([slot * beams + beam for slot in slots for beam in parents[slot]], np.int64)
