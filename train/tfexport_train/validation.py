"""How good the model is on text it does not learn from."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from tfexport_runtime.errors import TruncationWarning
from tfexport_runtime.options import TranslationOptions
from tfexport_train.batches import Batch, make_batch, ordered_batches
from tfexport_train.checkpoint import TextSide
from tfexport_train.corpus import EncodedPairs, TextPair
from tfexport_train.decoding import evaluating
from tfexport_train.evaluate import METRICS, TorchTranslator, greedy
from tfexport_train.loss import LossSums, projected_loss
from tfexport_train.model import EncoderDecoder
from tfexport_train.settings import TrainingSettings


@dataclass(frozen=True)
class Scores:
    """Loss and perplexity are means over the target tokens, end tokens included."""

    loss: float  # as in training, smoothed
    perplexity: float  # exp of the mean -log p, not smoothed
    metrics: dict[str, float] = field(default_factory=dict)  # 0 to 100

    def value(self, select_by: str) -> float:
        """Larger is better."""
        return -self.loss if select_by == "loss" else self.metrics[select_by]

    def described(self) -> str:
        parts = [f"loss {self.loss:.3f}", f"perplexity {self.perplexity:.2f}"]
        return ", ".join(parts + [f"{name} {value:.2f}" for name, value in self.metrics.items()])


@dataclass(frozen=True)
class Validator:
    """Scores a model on one part of the text."""

    texts: Sequence[TextPair]
    pairs: EncodedPairs
    source: TextSide
    target: TextSide
    settings: TrainingSettings
    options: TranslationOptions

    def scores(self, model: EncoderDecoder, sentences: int | None) -> Scores:
        """Loss on all pairs, metrics on greedy translations of the first `sentences` texts (None: all)."""
        with evaluating(model):
            loss, perplexity = self._losses(model)
            return Scores(loss, perplexity, self._metrics(model, self.texts[:sentences]))

    @torch.inference_mode()
    def _losses(self, model: EncoderDecoder) -> tuple[float, float]:
        device, smoothed, nll, tokens = model.output.weight.device, 0.0, 0.0, 0
        for indices in ordered_batches(self.pairs, self.settings.max_tokens):
            batch = make_batch(self.pairs, indices, model.config.pad_id).to(device)
            sums = batch_loss(model, batch, self.settings.label_smoothing)
            smoothed, nll, tokens = smoothed + sums.smoothed.item(), nll + sums.nll.item(), tokens + batch.target_tokens
        return smoothed / max(tokens, 1), math.exp(min(nll / max(tokens, 1), 700.0))

    def _metrics(self, model: EncoderDecoder, texts: Sequence[TextPair]) -> dict[str, float]:
        if not self.settings.metrics or not texts:
            return {}
        translator = TorchTranslator(model, self.source, self.target)
        # A line beyond the model's limit is part of the text all the same.
        options = greedy(self.options.with_changes({"truncate_source": True}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TruncationWarning)
            hypotheses = [t.text for t in translator.translate([source for source, _ in texts], options)]
        references = [target for _, target in texts]
        return {name: METRICS[name](hypotheses, references) for name in self.settings.metrics}


def batch_loss(model: EncoderDecoder, batch: Batch, smoothing: float) -> LossSums:
    """Sums over the positions that are not pad; only those are projected to the vocabulary."""
    pad_id = model.config.pad_id
    source_mask = batch.source != pad_id
    hidden = model.decode_hidden(model.encode(batch.source, source_mask), source_mask, batch.target_input)
    positions = (batch.target_output != pad_id).flatten().nonzero()[:, 0]
    counted = hidden.flatten(0, 1).index_select(0, positions)
    return projected_loss(counted, model.output, batch.target_output.flatten()[positions], smoothing, pad_id)
