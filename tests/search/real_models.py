"""Tiny real models with random weights, and the reference search over their full recomputation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from tests.search import reference
from tests.search.cases import assert_same
from tests.search.table_model import FloatArray, Ids
from tfexport_runtime.hypothesis import Decoded
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.search import search
from tfexport_runtime.step_model import Request, StepModel, Target
from tfexport_train.checkpoint import Checkpoint, TextSide
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.model import EncoderDecoder

VOCAB, POSITIONS = 40, 40
PRESETS = ("paper-base", "annotated", "modern-base", "modern-swiglu")
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam 4": {"beam_size": 4, "n_best": 4},
    "beam 8": {"beam_size": 8, "n_best": 8, "length_penalty": "gnmt", "alpha": 0.6},
    "rules": {"beam_size": 3, "n_best": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "min_length": 2},
    "soft prefix": {"beam_size": 2, "n_best": 2, "prefix_strength": 0.4},
    "samples": {"sampling": True, "temperature": 0.9, "top_k": 12, "top_p": 0.9, "seed": 5},
}


def tiny_checkpoint(preset: str) -> Checkpoint:
    """A published form in small, its matrices large enough to have opinions."""
    words = "\n".join(["<pad>", "<s>", "</s>", "<unk>", *(f"t{i}" for i in range(4, VOCAB))])
    side = TextSide("words", words.encode())
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 24, "num_encoder_layers": 1, "num_decoder_layers": 2}
    config = EncoderDecoderConfig.preset(preset, VOCAB, VOCAB, {**sizes, "max_positions": POSITIONS})
    torch.manual_seed(3)
    model = EncoderDecoder(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(1.5)
    return Checkpoint(config, model.state_dict(), side, side)


@dataclass
class Recompute:
    """Logits by running the whole model over one source and one target, each time from the beginning."""

    model: EncoderDecoder
    known: dict[tuple[Ids, Ids], FloatArray] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        config = self.model.config
        never = tuple(sorted({config.pad_id, config.start_id}))
        return Target(config.target_vocab_size, config.start_id, config.eos_id, never, config.max_positions)

    @torch.inference_mode()
    def logits(self, source: Ids, history: Ids) -> FloatArray:
        if (source, history) not in self.known:
            target = torch.tensor([[self.model.config.start_id, *history]])
            self.known[source, history] = self.model(torch.tensor([source]), target)[0, -1].numpy()
        return self.known[source, history]

    def expect(self, request: Request, options: TranslationOptions) -> tuple[list[reference.Result], float]:
        """The hypotheses, and the smallest gap between any two that had to be ordered on the way."""
        problem = reference.Problem(
            lambda history: self.logits(request.source, history),
            self.target.eos_id,
            self.target.never_generated,
            self.target.max_length,
            request.source,
            request.prefix,
        )
        if options.sampling:
            return [reference.sample(problem, options, request.sample)], min(problem.gaps)
        return reference.search(problem, options), min(problem.gaps)

    @torch.inference_mode()
    def rescored(self, request: Request, ids: Ids, ended: bool) -> float:
        """Teacher forcing over a whole hypothesis: the sum of its log-probabilities, in float64."""
        given = torch.tensor([[self.model.config.start_id, *ids]])
        logits = self.model(torch.tensor([request.source]), given)[0].double()
        logits[:, list(self.target.never_generated)] = -torch.inf
        log_probs = logits.log_softmax(-1).numpy()
        wanted = [*ids, *([self.target.eos_id] if ended else [])]
        return float(sum(log_probs[i, token] for i, token in enumerate(wanted) if i >= len(request.prefix)))


def ragged_requests(count: int, longest: int = 9) -> list[Request]:
    """Sources of 1 to `longest` ids, some with a prefix."""
    generator = np.random.default_rng(count)
    requests = []
    for i in range(count):
        source = generator.integers(3, VOCAB, generator.integers(1, longest + 1)).tolist()
        prefix = generator.integers(3, VOCAB, generator.integers(0, 3)).tolist() if i % 3 == 1 else []
        requests.append(Request((*source, 2), tuple(prefix), i))
    return requests


def assert_follows_the_reference(
    model: StepModel[Any], recompute: Recompute, requests: Sequence[Request], options: TranslationOptions
) -> list[list[Decoded]]:
    """Where two candidates are closer than float32 tells apart, either order is right, and only scores are compared."""
    found = search(model, requests, options, recompute.target)
    clear = 0
    for request, hypotheses in zip(requests, found, strict=True):
        expected, gap = recompute.expect(request, options)
        if gap > 1e-5:
            clear += 1
            assert_same(hypotheses, expected, tolerance=1e-4)
        elif not options.sampling:
            assert [d.score for d in hypotheses] == pytest.approx([r.score for r in expected], abs=1e-4)
    assert clear > len(requests) / 2
    return found
