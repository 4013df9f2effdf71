"""A tfexport bundle through its Python runtime: text in, text out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.work import Job, Output, Work
from tfexport_runtime.options import Progress, TranslationOptions
from tfexport_runtime.session import SessionOptions
from tfexport_runtime.translation import Translation
from tfexport_runtime.translator import Translator


class BundleContender:
    def __init__(self, translator: Translator, early_stopping: bool = True) -> None:
        """early_stopping: of natural lengths, as the peers stop."""
        self.translator, self.early_stopping = translator, early_stopping

    def prepare(self, work: Work) -> Job:
        options = bundle_options(work, self.translator.default_options, self.early_stopping)
        calls = [(batch, options) for batch in work.batches()]
        if work.lengths is not None:
            calls = [
                (batch, _of_lengths(options, work.lengths[i * work.call_size :])) for i, (batch, _) in enumerate(calls)
            ]
        return lambda: [_output(t) for batch, each in calls for t in self.translator.translate(batch, each)]

    def step_ends(self, text: str, tokens: int) -> list[float]:
        ends: list[float] = []

        def note(progress: Progress) -> None:
            ends.append(time.perf_counter())

        forced = Work((text,), 1, tokens)
        options = bundle_options(forced, self.translator.default_options).with_changes({"callback": note})
        self.translator.translate([text], options)
        return ends


def bundle_options(work: Work, defaults: TranslationOptions, early_stopping: bool = True) -> TranslationOptions:
    changes = {"beam_size": work.beam_size, "n_best": 1, "length_penalty": "average", "alpha": 1.0}
    if work.tokens is not None:
        one_batch = {"max_batch_tokens": 10**9}
        return defaults.with_changes(
            {**changes, **one_batch, "min_length": work.tokens, "max_length": work.tokens, "max_length_ratio": None}
        )
    if work.lengths is not None:
        return defaults.with_changes({**changes, "max_length_ratio": None})
    return defaults.with_changes({**changes, "early_stopping": early_stopping})


def _of_lengths(options: TranslationOptions, lengths: Sequence[int]) -> TranslationOptions:
    """Each sentence of a call ends at a length of its own: the callback cancels it there."""

    def is_long_enough(progress: Progress) -> bool:
        return len(progress.tokens) >= lengths[progress.sentence]

    longest = max(lengths)
    return options.with_changes({"min_length": longest, "max_length": longest, "callback": is_long_enough})


def _output(translation: Translation) -> Output:
    best = translation.best
    return Output(best.ids, sum(best.token_scores))


def load(path: Path, threads: int) -> BundleContender:
    return BundleContender(Translator(path, SessionOptions(threads=threads)))
