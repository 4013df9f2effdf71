"""Text in, text out, over any step model: tokenise, batch, search, detokenise, put back in order."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from tfexport_runtime.errors import InputError, OptionError, TruncationWarning
from tfexport_runtime.further_outputs import AttentionModel, check_attention, with_attention
from tfexport_runtime.hypothesis import Decoded, FinishReason, length_limit
from tfexport_runtime.options import TranslationOptions, check_options
from tfexport_runtime.search import Model, search
from tfexport_runtime.step_model import FloatArray, Request, Target
from tfexport_runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a text."""

    text: str
    tokens: tuple[str, ...]  # written form of `ids`
    ids: tuple[int, ...]  # prefix and generated tokens, without `eos`
    score: float  # sum of log-probabilities under the length penalty
    token_scores: tuple[float, ...]  # log-probability of each token (0 for a forced prefix), then of `eos` if reached
    finish_reason: FinishReason
    # On request, by output: what each of the tokens in `token_scores` looked at, float32 [T, heads, source ids].
    attention: Mapping[str, FloatArray] = field(default_factory=dict)

    @property
    def truncated(self) -> bool:
        """True when it was cut before `eos`."""
        return self.finish_reason != "eos"


@dataclass(frozen=True)
class Translation:
    """The hypotheses of one text, best first; there is always at least one."""

    hypotheses: tuple[Hypothesis, ...]

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]

    @property
    def text(self) -> str:
        return self.best.text


EMPTY = Translation((Hypothesis("", (), (), 0.0, (), "eos"),))


@dataclass(frozen=True)
class Vocabularies:
    """How text becomes what the encoder reads, and what the decoder gives becomes text."""

    source: Tokenizer
    target: Tokenizer
    before: tuple[int, ...]  # ids in front of every source
    after: tuple[int, ...]  # ids behind it
    max_source_length: int


def translate(
    model: Model,
    vocabularies: Vocabularies,
    target: Target,
    texts: Sequence[str],
    options: TranslationOptions,
    prefixes: Sequence[str] | None = None,
    parallel_batches: int = 1,
    attention: bool = False,
) -> list[Translation]:
    """The translations of the texts, in their order. `prefixes` are beginnings of the targets, one for each text.

    With parallel_batches above 1 a callback is called by several threads. attention: of a bundle that gives it.
    Raises OptionError before any work, and InputError for a text that is too long.
    """
    if isinstance(texts, str):
        raise OptionError("translate takes a list of texts, not one string")
    if prefixes is not None and len(prefixes) != len(texts):
        raise OptionError(f"{len(prefixes)} prefixes for {len(texts)} texts")
    check_options(options, target)
    if attention:
        check_attention(model)
    sources = [source_ids(text, i, vocabularies, options) for i, text in enumerate(texts)]
    requests = [
        Request(source, tuple(vocabularies.target.encode(prefixes[i])) if prefixes else (), i, sample)
        for i, source in enumerate(sources)
        if source
        for sample in range(options.n_best if options.sampling else 1)
    ]
    _check_room(requests, options, target)
    decoded: dict[int, dict[int, list[Decoded]]] = {}
    found = partial(_searched, model, options=options, target=target, attention=attention)
    planned = list(batches(requests, options, parallel_batches))
    with ThreadPoolExecutor(parallel_batches) as threads:
        results = threads.map(found, planned) if parallel_batches > 1 else map(found, planned)
        for batch, batch_results in zip(planned, results, strict=True):
            for request, hypotheses in zip(batch, batch_results, strict=True):
                decoded.setdefault(request.index, {})[request.sample] = hypotheses
    return [
        _translation([h for _, hs in sorted(decoded[i].items()) for h in hs], vocabularies) if i in decoded else EMPTY
        for i in range(len(texts))
    ]


def _searched(
    model: Model, requests: Sequence[Request], options: TranslationOptions, target: Target, attention: bool
) -> list[list[Decoded]]:
    """A search by steps does not keep what was looked at: its results are read once more."""
    results = search(model, requests, options, target)
    if not attention or not isinstance(model, AttentionModel):
        return results
    return [with_attention(model, r.source, found, target) for r, found in zip(requests, results, strict=True)]


def batches(requests: Sequence[Request], options: TranslationOptions, parallel: int = 1) -> Iterator[list[Request]]:
    """Requests of similar length together, the longest first, `max_batch_tokens` source tokens at most, beams counted.

    The longest first, so that the largest buffers are asked for once. Where `parallel` batches run at the same time,
    there are that many if there are requests for them.
    """
    limit = options.max_batch_tokens
    if parallel > 1:
        total = sum(len(r.source) for r in requests) * options.beam_size
        limit = min(limit, -(-total // parallel))
    batch: list[Request] = []
    for request in sorted(requests, key=lambda r: -len(r.source)):
        width = len(batch[0].source) if batch else len(request.source)
        if batch and (len(batch) + 1) * width * options.beam_size > limit:
            yield batch
            batch = []
        batch.append(request)
    if batch:
        yield batch


def source_ids(text: str, index: int, vocabularies: Vocabularies, options: TranslationOptions) -> tuple[int, ...]:
    """What the encoder reads; empty for a text without tokens."""
    try:
        ids = vocabularies.source.encode(text)
    except UnicodeEncodeError as error:
        raise InputError("holds a lone surrogate, which is not a character", index) from error
    if not ids:
        return ()
    room = vocabularies.max_source_length - len(vocabularies.before) - len(vocabularies.after)
    if len(ids) > room:
        if not options.truncate_source:
            raise InputError(
                f"has {len(ids)} tokens, the model takes {room}; split it, or allow truncate_source", index
            )
        warnings.warn(TruncationWarning(f"was cut from {len(ids)} to {room} tokens", index), stacklevel=4)
    return (*vocabularies.before, *ids[:room], *vocabularies.after)


def _check_room(requests: Sequence[Request], options: TranslationOptions, target: Target) -> None:
    for request in requests:
        forced = len(request.prefix) if options.prefix_strength == 1 else 0
        room = target.max_length - len(target.prefix_ids)
        if forced >= room:
            raise InputError(
                f"has a prefix of {forced} tokens, which leaves no room to generate; the model takes {room}",
                request.index,
            )
        if length_limit(len(request.source), forced, options, target) < 1:
            raise InputError(
                f"has {len(request.source)} tokens, for which max_length_ratio {options.max_length_ratio} and "
                f"max_length_extra {options.max_length_extra} allow no output; raise one of them",
                request.index,
            )


def _translation(decoded: Sequence[Decoded], vocabularies: Vocabularies) -> Translation:
    tokenizer = vocabularies.target
    return Translation(
        tuple(
            Hypothesis(
                tokenizer.decode(d.ids),
                tuple(tokenizer.tokens(d.ids)),
                d.ids,
                d.score,
                d.token_scores,
                d.finish_reason,
                d.attention,
            )
            for d in sorted(decoded, key=lambda d: -d.score)  # stable: they are in order unless they are samples
        )
    )
