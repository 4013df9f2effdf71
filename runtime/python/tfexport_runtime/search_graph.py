"""A graph that holds the whole search: token ids in, token ids out. See docs/formats.md, "single".

Letters: B sentences, K beams, S source length, T steps of the search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tfexport_runtime.cache import Array
from tfexport_runtime.errors import OptionError
from tfexport_runtime.graph_pair import ENCODER_STATE, Graph, attention_names, check_states, padded
from tfexport_runtime.hypothesis import Decoded, length_limit
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.search import ModelOutputError
from tfexport_runtime.step_model import FloatArray, Request, Target

OPTIONS = (  # score = sum / ((n + length_offset) / length_scale)^alpha + word_reward * n
    "max_length_ratio",  # infinity: no such limit
    "max_length_extra",
    "min_length",
    "early_stopping",  # 0: no
    "alpha",
    "length_offset",
    "length_scale",
    "word_reward",
)
"""What the numbers of the graph's input `options` mean. Who does not give it gets those of the bundle."""

OUTPUTS = ("sequences", "lengths", "scores", "token_scores", "finished")


def options_input(options: TranslationOptions) -> FloatArray:
    """float32 [8], in the order of OPTIONS."""
    values = {
        "max_length_ratio": math.inf if options.max_length_ratio is None else options.max_length_ratio,
        "max_length_extra": options.max_length_extra,
        "min_length": options.min_length,
        "early_stopping": options.early_stopping,
        **_length_penalty(options),
    }
    return np.array([values[name] for name in OPTIONS], np.float32)


def _length_penalty(options: TranslationOptions) -> Mapping[str, float]:
    """The four penalties of SPEC.md as one formula."""
    plain = {"alpha": 0.0, "length_offset": 0.0, "length_scale": 1.0, "word_reward": 0.0}
    given: dict[str, Mapping[str, float]] = {
        "none": {},
        "average": {"alpha": options.alpha, "length_offset": options.length_offset},
        "gnmt": {"alpha": options.alpha, "length_offset": 5, "length_scale": 6},
        "word_reward": {"word_reward": options.word_reward},
    }
    return {**plain, **given[options.length_penalty]}


class SearchGraph:
    """The graph as something that searches by itself; it knows fewer options than the search of this package."""

    def __init__(self, graph: Graph, pad_id: int, outputs: Sequence[str] = OUTPUTS) -> None:
        """pad_id fills up short sources; outputs: what the graph has."""
        self._graph, self._pad_id = graph, pad_id
        self.attention_names = attention_names(outputs)
        self._gives_states = ENCODER_STATE in outputs

    def search(self, requests: Sequence[Request], options: TranslationOptions, target: Target) -> list[list[Decoded]]:
        """For each request its hypotheses, best first. Raises OptionError for what the graph cannot do."""
        _check(requests, options)
        ids, mask = padded([request.source for request in requests], self._pad_id)
        limits = [length_limit(len(request.source), 0, options, target) for request in requests]
        inputs: dict[str, Array] = {
            "input_ids": ids,
            "attention_mask": mask,
            "beam_size": np.array([options.beam_size]),
            "max_length": np.array(limits),  # they say all; so the graph need not look at the length of the source
            "options": options_input(options.with_changes({"max_length_ratio": None})),
        }
        found = self._graph.run((*OUTPUTS, *self.attention_names), inputs)
        return [self._decoded(request, options.n_best, rows) for request, *rows in zip(requests, *found, strict=True)]

    def encoder_states(self, source: Sequence[int]) -> FloatArray:
        """The encoder's last hidden states, [S, d_model]. Raises OptionError where the graph does not give them."""
        check_states(self._gives_states)
        ids, mask = padded([source], self._pad_id)
        shortest = {"beam_size": np.array([1]), "max_length": np.array([1])}
        found = self._graph.run([ENCODER_STATE], {"input_ids": ids, "attention_mask": mask, **shortest})
        states: FloatArray = found[0][0]
        return states

    def _decoded(self, request: Request, n_best: int, rows: Sequence[Array]) -> list[Decoded]:
        """rows: of the outputs, [K, T] and [K] by turns as in OUTPUTS, then [K, T, heads, S] of each attention."""
        hypotheses = list(_hypotheses(*rows[: len(OUTPUTS)]))[:n_best]
        if not hypotheses or math.isnan(hypotheses[0].score):
            raise ModelOutputError(f"the graph found nothing for sentence {request.index + 1}; verify the bundle")
        for name, weights in zip(self.attention_names, rows[len(OUTPUTS) :], strict=True):
            for hypothesis, seen in zip(hypotheses, weights, strict=False):
                hypothesis.attention[name] = seen[: len(hypothesis.token_scores), :, : len(request.source)]
        return hypotheses


def _check(requests: Sequence[Request], options: TranslationOptions) -> None:
    refused = {
        "sampling": options.sampling,
        "no_repeat_ngram_size": options.no_repeat_ngram_size > 0,
        "repetition_penalty": options.repetition_penalty != 1,
        "suppress_tokens": bool(options.suppress_tokens),
        "a callback": options.callback is not None,
        "prefixes": any(request.prefix for request in requests),
    }
    if asked := [name for name, is_asked in refused.items() if is_asked]:
        raise OptionError(
            f"a bundle of format single cannot do {', '.join(asked)}: leave it out, or use another format"
        )


def _hypotheses(ids: Array, lengths: Array, scores: Array, token_scores: Array, finished: Array) -> Iterator[Decoded]:
    for row, length, score, log_probs, ended in zip(ids, lengths, scores, token_scores, finished, strict=True):
        if score == -math.inf:  # there are no more
            return
        taken = log_probs[: length + ended].tolist()
        yield Decoded(tuple(row[:length].tolist()), float(score), tuple(taken), "eos" if ended else "length")
