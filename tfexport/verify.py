"""Is the bundle the checkpoint? ONNX Runtime against PyTorch: numbers first, then tokens and scores.

Letters: B sentences, K beams, R = B*K rows, S source length, T steps, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tfexport.agreement import SearchAgreement, compare_search, forced_pairs, measure_agreement
from tfexport.formats.registry import open_any
from tfexport.formats.single_text import compare_texts
from tfexport.graphs.kernels import in_place_head_size
from tfexport.kernel_check import KernelReport, check_kernels
from tfexport.layer_noise import FloatWeights
from tfexport.parity import ParityReport, ParityRow, Worst
from tfexport.samples import random_sources, sample_texts
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.cache import GrowingCache, InPlaceCache, Memory
from tfexport_runtime.fixed_model import FixedCache, FixedModel
from tfexport_runtime.graph_pair import GraphPair, GrowingModel, padded
from tfexport_runtime.manifest import ModelInfo
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.search import Model, WholeSearch
from tfexport_runtime.session import InPlaceModel, SessionOptions
from tfexport_runtime.step_model import StepModel
from tfexport_runtime.translation import Translation, translate
from tfexport_runtime.translator import bundle_vocabularies
from tfexport_train.attention import DecoderCache
from tfexport_train.checkpoint import Checkpoint
from tfexport_train.decoding import TorchStepModel
from tfexport_train.errors import CheckpointError
from tfexport_train.evaluate import bleu, chrf
from tfexport_train.model import EncoderDecoder

TOLERANCE = 1e-4  # absolute, on logits, cross-attention keys and values, and scores, in float32
BATCH_TOLERANCE = 1e-5  # on scores of the same sentence alone and among others
ROUNDED_BATCH_TOLERANCE = 1e-2  # a last bit of a float sum may round an activation to its other neighbour
NOISE_LIMIT = 0.5  # above it a reduced precision is broken, not only rough

_SIZES = (
    "num_encoder_layers",
    "num_decoder_layers",
    "num_heads",
    "head_size",
    "source_vocab_size",
    "target_vocab_size",
)


@dataclass(frozen=True)
class VerifyOptions:
    """What is compared."""

    texts: Sequence[str] | None = None  # None: made from the vocabulary
    references: Sequence[str] | None = None  # with texts: BLEU and chrF of both
    max_bleu_loss: float | None = None  # with references: how much less BLEU than PyTorch is a failure
    beam_sizes: tuple[int, ...] = (1, 4)
    shapes: tuple[tuple[int, int, int], ...] = ((1, 1, 1), (1, 4, 7), (2, 1, 20), (5, 4, 33))  # B, K, S
    tolerance: float = TOLERANCE  # in float32
    steps: int = 40  # teacher-forced steps for each shape, at most
    alone: int = 100  # the first texts of which each is also translated alone
    forced: int = 200  # of a reduced precision: the first texts whose every position is compared with float32
    probed: int = 8  # and the first texts on which the noise of every layer is measured
    max_length: int | None = None  # of searches; None: 32 for texts made here, the bundle's own limit for given ones
    seed: int = 0


@dataclass(frozen=True)
class _Outputs:
    """The best translations of both sides by one search, and what is to be said of them."""

    ours: Sequence[Translation]
    theirs: Sequence[Translation]
    agreement: SearchAgreement


def verify_bundle(
    bundle: Bundle, checkpoint: Checkpoint, options: VerifyOptions, weights: FloatWeights | None = None
) -> ParityReport:
    """Compares a bundle with the checkpoint it was made from; differences are in the report, not raised.

    weights: of the graphs in float, if they are at hand; else a reduced precision with texts is traced once more.
    Raises CheckpointError for one of another shape.
    """
    _check_shape(bundle, checkpoint)
    exported = open_any(bundle, SessionOptions())
    model = checkpoint.view_model()
    exact = bundle.manifest.precision == "fp32"
    longest = bundle.manifest.model  # of the graphs; fixed ones may take less than the model
    if isinstance(exported, WholeSearch):
        numbers = []  # no step of it can be looked at
    elif exact:
        numbers = _compare_numbers(exported, model, options, longest)
    else:
        numbers = [_measure_noise(exported, model, options.seed)]
    in_float = bundle.manifest.precision in ("fp32", "fp16")
    kernels = None if in_float else check_kernels(bundle, random_sources(model.config, 1, 8, options.seed)[0])
    texts = list(options.texts) if options.texts is not None else sample_texts(bundle, options.seed)
    tokens, outputs = _compare_searches(bundle, exported, model, texts, options)
    quality = _quality(outputs[-1], options.references)
    agreement = None
    if isinstance(exported, InPlaceModel) and not exact and options.texts is not None:
        searches, expected = [output.agreement for output in outputs], outputs[-1].theirs
        both = forced_pairs(bundle, texts, expected)
        agreement = measure_agreement(
            bundle, exported, model, searches, both[: options.forced], options.probed, weights
        )
    gates = (*_kernel_gate(kernels), *_quality_gate(quality, len(texts), options.max_bleu_loss))
    return ParityReport((*numbers, *tokens, *gates), quality, agreement, kernels)


def _check_shape(bundle: Bundle, checkpoint: Checkpoint) -> None:
    """Between two models of unlike shapes there are no numbers to compare."""
    for name in _SIZES:
        ours, theirs = getattr(bundle.manifest.model, name), getattr(checkpoint.config, name)
        if ours != theirs:
            raise CheckpointError(
                f"{bundle.origin}: {name} is {ours}, the checkpoint's {theirs}; compare it with what it was made from"
            )


def _compare_numbers(
    exported: StepModel[Any], model: EncoderDecoder, options: VerifyOptions, longest: ModelInfo
) -> list[ParityRow]:
    """The graphs alone, on random ids: every shape, then the very last position of the model.

    What the encoder gives and a cache made here can be looked at only where both are arrays.
    """
    encoder, logits, last = Worst(), Worst(), Worst()
    sources_up_to, targets_up_to = longest.max_source_length, longest.max_target_length
    for batch, beams, length in (*options.shapes, (2, 1, sources_up_to)):
        sources = random_sources(model.config, batch, min(length, sources_up_to), options.seed + length)
        if isinstance(exported, GraphPair):
            _compare_encoder(model, sources, exported.encode(sources), encoder)
        _compare_steps(exported, model, sources, beams, min(options.steps, targets_up_to), logits)
    if isinstance(exported, InPlaceModel | GrowingModel | FixedModel):
        _compare_last_position(exported, model, longest, options.seed, last)
    rows = [
        encoder.row("encoder: keys and values", options.tolerance),
        logits.row("decoder: logits, teacher-forced", options.tolerance),
        last.row("decoder: logits at the last position", options.tolerance),
    ]
    return [row for row in rows if row.compared]


def _measure_noise(exported: StepModel[Any], model: EncoderDecoder, seed: int) -> ParityRow:
    """Reduced precision: the error of the logits over their spread, root mean squares, on random ids."""
    sources = random_sources(model.config, 4, min(20, model.config.max_positions), seed)
    steps = min(20, model.config.max_positions)
    target = np.random.default_rng(seed).integers(0, model.config.target_vocab_size, (len(sources), steps))
    target[:, 0] = model.config.start_id
    with torch.inference_mode():
        source, mask = _padded(model, sources)
        expected = model.decode(model.encode(source, mask), mask, torch.from_numpy(target)).numpy()
    cache, found = exported.start(sources, 1), []
    for step in range(steps):
        logits, cache = exported.step_logits(np.ascontiguousarray(target[:, step]), cache)
        found.append(logits.copy())
    error = np.stack(found, axis=1) - expected
    ratio = float(np.sqrt((error**2).mean()) / expected.std())
    return ParityRow("decoder: noise over signal of the logits", ratio, NOISE_LIMIT, error.size)


def _compare_encoder(model: EncoderDecoder, sources: Sequence[Sequence[int]], memory: Memory, worst: Worst) -> None:
    """Cross-attention keys and values [B, H, S, D] on real tokens."""
    with torch.inference_mode():
        expected = model.cross_key_values(model.encode(*_padded(model, sources)))
    flat = [tensor.numpy() for pair in expected for tensor in pair]
    for i, (ours, theirs) in enumerate(zip(memory.cross, flat, strict=True)):
        for sentence, source in enumerate(sources):
            difference = np.abs(ours[sentence, :, : len(source)] - theirs[sentence, :, : len(source)])
            where = f"encoder graph, decoder layer {i // 2} {'value' if i % 2 else 'key'}, sentence {sentence}"
            worst.see(float(difference.max()), f"{where} of {len(sources)}, source length {len(source)}")


def _compare_steps(
    exported: StepModel[Any],
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    beams: int,
    steps: int,
    worst: Worst,
) -> None:
    """Step logits of the graph against one full computation over the whole target in PyTorch."""
    rows = len(sources) * beams
    generator = np.random.default_rng(steps + rows)
    target = generator.integers(0, model.config.target_vocab_size, (rows, steps))
    target[:, 0] = model.config.start_id
    with torch.inference_mode():
        source, mask = _padded(model, [s for s in sources for _ in range(beams)])
        expected = model.decode(model.encode(source, mask), mask, torch.from_numpy(target)).numpy()
    cache = exported.start(sources, beams)
    for step in range(steps):
        logits, cache = exported.step_logits(np.ascontiguousarray(target[:, step]), cache)
        difference = np.abs(logits - expected[:, step]).max(axis=1)
        row = int(np.nanargmax(difference)) if not np.isnan(difference).all() else 0
        where = f"decoder graph, step {step}, sentence {row // beams} of {len(sources)}, beam {row % beams} of {beams}"
        worst.see(float(difference.max()), where, rows)


def _compare_last_position(
    exported: InPlaceModel | GrowingModel | FixedModel,
    model: EncoderDecoder,
    longest: ModelInfo,
    seed: int,
    worst: Worst,
) -> None:
    """One step at the positional limit, over a random past: longer searches than any sample are right, too."""
    config, generator = model.config, torch.Generator().manual_seed(seed)
    sources = random_sources(config, 1, min(9, longest.max_source_length), seed)
    past = longest.max_target_length - 1
    shape = (1, config.num_heads, past, config.head_size)
    layers = [
        (torch.randn(shape, generator=generator), torch.randn(shape, generator=generator))
        for _ in range(config.num_decoder_layers)
    ]
    with torch.inference_mode():
        source, mask = _padded(model, sources)
        cross = model.cross_key_values(model.encode(source, mask))
        lengths = torch.tensor([past], dtype=torch.int32)
        start = torch.tensor([[config.start_id]])
        expected, _ = model.step(start, DecoderCache(lengths, layers, cross, mask))
    flat = [tensor.numpy() for pair in layers for tensor in pair]
    cache = _cache_with_past(exported, sources, flat)
    logits, _ = exported.step_logits(np.array([config.start_id]), cache)  # type: ignore[arg-type]
    difference = float(np.abs(logits - expected.numpy()).max())
    worst.see(difference, f"decoder graph, step {past}, over a random past")


def _cache_with_past(
    exported: InPlaceModel | GrowingModel | FixedModel, sources: Sequence[Sequence[int]], past: list[Any]
) -> InPlaceCache | GrowingCache | FixedCache:
    """Of one row. past: 2L arrays [1, H, P, D]."""
    _, heads, length, head_size = past[0].shape
    lengths = np.array([length], np.int32)
    if isinstance(exported, FixedModel):
        fixed = exported.start(sources, 1)
        for layer, array in zip(fixed.chunks[0].layers, past, strict=True):
            layer[:1, :, :length] = array
        return replace(fixed, lengths=lengths)
    memory = exported.encode(sources)
    if isinstance(exported, GrowingModel):
        return GrowingCache(memory, past, lengths)
    padded = in_place_head_size(head_size)
    cache = InPlaceCache.empty(memory, 1, len(past) // 2, heads, padded, length + 1)
    for i, array in enumerate(past):
        cache.layer(i)[:, :, :length, :head_size] = array
    cache.lengths[:] = lengths
    return cache


def _compare_searches(
    bundle: Bundle,
    exported: Model,
    model: EncoderDecoder,
    texts: Sequence[str],
    options: VerifyOptions,
) -> tuple[list[ParityRow], list[_Outputs]]:
    """Tokens and scores of whole searches over ragged batches."""
    rows: list[ParityRow] = []
    outputs: list[_Outputs] = []
    exact = bundle.manifest.precision == "fp32"
    vocabularies, target = bundle_vocabularies(bundle), bundle.manifest.search_target()
    reference = TorchStepModel(model)
    for beam in options.beam_sizes:
        wanted = TranslationOptions(beam_size=beam, n_best=beam, truncate_source=True, max_length=_max_length(options))
        ours = translate(exported, vocabularies, target, texts, wanted)
        theirs = translate(reference, vocabularies, target, texts, wanted)
        search = "greedy" if beam == 1 else f"beam {beam}"
        rows += _compare_translations(ours, theirs, search, options.tolerance if exact else None)
        outputs.append(_Outputs(ours, theirs, compare_search(search, ours, theirs)))
        few = texts[: options.alone]
        alone = translate(exported, vocabularies, target, few[::-1], replace(wanted, max_batch_tokens=1))[::-1]
        tolerance = _batch_tolerance(bundle.manifest.precision)
        rows += _compare_translations(alone, ours[: len(few)], f"{search}, each alone", tolerance)
        rows += compare_texts(bundle, texts, theirs, wanted)
    return rows, outputs


def _batch_tolerance(precision: str) -> float | None:
    """On scores of a sentence alone and among others; None: other tokens are counted and allowed.

    MatMulNBits adds up in another order for one row than for several, which may decide between two close tokens.
    """
    return {"fp32": BATCH_TOLERANCE, "int8": ROUNDED_BATCH_TOLERANCE}.get(precision)


def _max_length(options: VerifyOptions) -> int | None:
    """Untrained weights rarely stop by themselves, and random text tells nothing after a while."""
    return 32 if options.max_length is None and options.texts is None else options.max_length


def _compare_translations(
    ours: Sequence[Translation], theirs: Sequence[Translation], search: str, tolerance: float | None
) -> list[ParityRow]:
    """tolerance None: other tokens are counted and allowed, as of a bundle in reduced precision."""
    tokens, scores = Worst(), Worst()
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.best.ids != b.best.ids:
            step = next((t for t, (x, y) in enumerate(zip(a.best.ids, b.best.ids, strict=False)) if x != y), None)
            shorter = min(len(a.best.ids), len(b.best.ids))
            tokens.see(tokens.difference + 1, tokens.where or f"sentence {i}, step {shorter if step is None else step}")
        else:
            tokens.see(tokens.difference, tokens.where)
        scores.see(abs(a.best.score - b.best.score), f"sentence {i}")
    if tolerance is None:
        return [tokens.row(f"{search}: sentences with other tokens", len(ours))]
    return [
        tokens.row(f"{search}: sentences with other tokens", 0),
        scores.row(f"{search}: scores", tolerance),
    ]


def _kernel_gate(kernels: KernelReport | None) -> list[ParityRow]:
    if kernels is None:
        return []
    where = ", ".join(map(str, kernels.in_float[:1]))
    return [ParityRow("quantised products that ran in float", len(kernels.in_float), 0, kernels.products, where)]


def _quality(outputs: _Outputs, references: Sequence[str] | None) -> dict[str, float]:
    if references is None:
        return {}
    ours, theirs = ([t.text for t in side] for side in (outputs.ours, outputs.theirs))
    return {
        "bleu": bleu(ours, references),
        "bleu_pytorch": bleu(theirs, references),
        "chrf": chrf(ours, references),
        "chrf_pytorch": chrf(theirs, references),
    }


def _quality_gate(quality: dict[str, float], compared: int, max_bleu_loss: float | None) -> list[ParityRow]:
    if not quality or max_bleu_loss is None:
        return []
    return [ParityRow("BLEU lost", max(0.0, quality["bleu_pytorch"] - quality["bleu"]), max_bleu_loss, compared)]


def _padded(model: EncoderDecoder, sources: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """ids int64 and mask bool, [B, S]."""
    ids, mask = padded(sources, model.config.pad_id)
    return torch.from_numpy(ids), torch.from_numpy(mask).bool()
