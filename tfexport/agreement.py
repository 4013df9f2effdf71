"""A bundle in reduced precision beside float32, on given text: tokens, and which layers are to blame.

Letters: R rows, T steps, V vocabulary.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tfexport.graphs.float_graphs import optimise, trace_graphs
from tfexport.layer_noise import FloatWeights, LayerNoise, float_weights, measure_layers
from tfexport.samples import encoder_ids
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.session import InPlaceModel
from tfexport_runtime.step_model import IntArray, StepModel
from tfexport_runtime.translation import Translation
from tfexport_runtime.translator import bundle_vocabularies
from tfexport_train.decoding import TorchStepModel
from tfexport_train.model import EncoderDecoder

Ids = Sequence[int]

SHOWN_LAYERS = 8
ROWS = 32  # sentences that are forced together


@dataclass(frozen=True)
class SearchAgreement:
    """The best translations of a bundle and of float32. Steps count from 0."""

    search: str
    same: float  # share of the sentences with the same tokens
    earliest: int | None  # the first step with another token, in the sentence where it comes first
    median: float | None  # of that step, over the sentences that differ


@dataclass(frozen=True)
class Agreement:
    searches: tuple[SearchAgreement, ...]
    positions: float  # share of target positions where both prefer the same token behind float32's translation so far
    compared: int  # how many positions
    layers: tuple[LayerNoise, ...]  # the noisiest first

    def to_dict(self, complete: bool = False) -> dict[str, Any]:
        """With the noisiest layers, or with all."""
        layers = self.layers if complete else self.layers[:SHOWN_LAYERS]
        return {
            "searches": [asdict(search) for search in self.searches],
            "positions": self.positions,
            "compared": self.compared,
            "layers": [{**asdict(layer), "decibels": round(layer.decibels, 2)} for layer in layers],
        }


def forced_pairs(bundle: Bundle, texts: Sequence[str], translations: Sequence[Translation]) -> list[tuple[Ids, Ids]]:
    """What the encoder and the decoder read, for every text that has a token: the decoder from the start token on."""
    manifest, vocabularies = bundle.manifest, bundle_vocabularies(bundle)
    before = (manifest.target.start_id, *manifest.target.prefix_ids)
    return [
        (source, (*before, *translation.best.ids)[: manifest.model.max_target_length])
        for text, translation in zip(texts, translations, strict=True)
        if (source := encoder_ids(text, vocabularies))
    ]


def measure_agreement(
    bundle: Bundle,
    exported: InPlaceModel,
    model: EncoderDecoder,
    searches: Sequence[SearchAgreement],
    pairs: Sequence[tuple[Ids, Ids]],
    probed: int,
    weights: FloatWeights | None,
) -> Agreement | None:
    """Both sides on given sources and targets; None without any. Layers are measured on the first `probed` of them.

    weights: of the graphs in float; None: they are traced.
    """
    if not pairs:
        return None
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    share, compared = compare_positions(exported, TorchStepModel(model), sources, targets)
    if weights is None:
        graphs = trace_graphs(model, fused=True, opset=bundle.manifest.opset)
        weights = float_weights({name: optimise(graph) for name, graph in graphs.items()})
    layers = measure_layers(bundle, exported, weights, sources[:probed], targets[:probed])
    return Agreement(tuple(searches), share, compared, layers)


def compare_search(search: str, ours: Sequence[Translation], theirs: Sequence[Translation]) -> SearchAgreement:
    steps = [
        s for a, b in zip(ours, theirs, strict=True) if (s := first_difference(a.best.ids, b.best.ids)) is not None
    ]
    same = 1 - len(steps) / max(len(ours), 1)
    return SearchAgreement(search, same, min(steps, default=None), statistics.median(steps) if steps else None)


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """The first step with another token, or at which one has ended; None if they are the same."""
    if a == b:
        return None
    shorter = min(len(a), len(b))
    return next((t for t in range(shorter) if a[t] != b[t]), shorter)


def compare_positions(
    exported: StepModel[Any],
    reference: StepModel[Any],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> tuple[float, int]:
    """Share of positions with the same most probable token, and how many there are.

    targets: what both read, from the start token on. Every position of it counts.
    """
    order = sorted(range(len(sources)), key=lambda i: len(targets[i]))
    same = compared = 0
    for first in range(0, len(order), ROWS):
        rows = order[first : first + ROWS]
        lengths = np.array([len(targets[i]) for i in rows])
        tokens = np.zeros((len(rows), lengths.max()), np.int64)
        for row, i in enumerate(rows):
            tokens[row, : lengths[row]] = targets[i]
        ours, theirs = (preferred(model, [sources[i] for i in rows], tokens) for model in (exported, reference))
        real = np.arange(tokens.shape[1]) < lengths[:, None]
        same, compared = same + int((ours == theirs)[real].sum()), compared + int(real.sum())
    return same / max(compared, 1), compared


def preferred(model: StepModel[Any], sources: Sequence[Sequence[int]], tokens: IntArray) -> IntArray:
    """The most probable next token behind every position of tokens [R, T]; one row for each source."""
    cache, found = model.start(sources, 1), []
    for step in range(tokens.shape[1]):
        logits, cache = model.step_logits(np.ascontiguousarray(tokens[:, step]), cache)
        found.append(logits.argmax(axis=1))
    return np.stack(found, axis=1)
