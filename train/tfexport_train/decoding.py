"""The PyTorch module behind the runtime's search: the reference that exported graphs are compared with.

Letters: B sentences, K beams, R = B*K rows, N candidates a row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tfexport_runtime.step_model import Candidates, FloatArray, IntArray
from tfexport_train.attention import DecoderCache
from tfexport_train.model import EncoderDecoder, log_probabilities


@dataclass(frozen=True)
class TorchCache:
    """DecoderCache, as the search sees it."""

    state: DecoderCache

    def select(self, rows: IntArray) -> TorchCache:
        """rows [R']: the new row r continues the old row rows[r]."""
        if np.array_equal(rows, np.arange(len(self.state.lengths))):
            return self
        return TorchCache(self.state.select(torch.from_numpy(rows).to(self.state.lengths.device)))


class TorchStepModel:
    """A StepModel. The module should be in eval mode; `evaluating` puts it there for a while."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.model = model

    @property
    def device(self) -> torch.device:
        return self.model.source_embedding.tokens.weight.device

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]], beam_size: int) -> TorchCache:
        """Pads B sources to the longest and encodes them, for B * beam_size rows."""
        width = max(map(len, sources))
        mask = torch.tensor([[i < len(s) for i in range(width)] for s in sources], device=self.device)
        pad_id = self.model.config.pad_id
        ids = torch.tensor([[*s, *[pad_id] * (width - len(s))] for s in sources], device=self.device)
        return TorchCache(self.model.start(ids, mask, beam_size))

    @torch.inference_mode()
    def step(self, tokens: IntArray, cache: TorchCache, bias: FloatArray, count: int) -> tuple[Candidates, TorchCache]:
        """tokens [R]; bias [V] is added to the logits. The `count` best next tokens of each row."""
        logits, state = self._step(tokens, cache)
        log_probs = log_probabilities(logits + torch.from_numpy(bias).to(self.device))
        values, ids = best(log_probs, count)
        return Candidates(values.cpu().numpy(), ids.cpu().numpy()), TorchCache(state)

    @torch.inference_mode()
    def step_logits(self, tokens: IntArray, cache: TorchCache) -> tuple[FloatArray, TorchCache]:
        """All logits [R, V]."""
        logits, state = self._step(tokens, cache)
        return logits.float().cpu().numpy(), TorchCache(state)

    def _step(self, tokens: IntArray, cache: TorchCache) -> tuple[Tensor, DecoderCache]:
        return self.model.step(torch.from_numpy(tokens).to(self.device)[:, None], cache.state)


def best(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of every row of [R, V], largest first; of equals the lower id first. Both [R, N]."""
    values, ids = log_probs.topk(count, dim=-1)
    enough = log_probs >= values[:, -1:]
    if int(enough.sum()) != ids.numel():  # equals at the border: topk may have kept the wrong one
        values, ids = log_probs.sort(dim=-1, descending=True, stable=True)
        return values[:, :count], ids[:, :count]
    if bool((values[:, 1:] == values[:, :-1]).any()):
        ids = ids.sort(dim=-1).values
        values, order = log_probs.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
        ids = ids.gather(-1, order)
    return values, ids


@contextmanager
def evaluating(model: EncoderDecoder) -> Iterator[None]:
    """Eval mode inside, the former mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
