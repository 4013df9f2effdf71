"""Cross-entropy against the label-smoothed distribution of the tutorials.

The target distribution q of a position: 1 - ε on the reference token, 0 on pad, ε / (V - 2) on each other token.
The loss is the cross-entropy -Σ q log p, summed over the positions. The Kullback-Leibler form of the Annotated
Transformer, Σ q (log q - log p), is this minus the entropy of q, a constant (`smoothing_entropy`): same gradients.

Projection and loss are one function, because logits [N, V] of a whole batch are the largest tensor of a training step:
here they exist for a few rows at a time, which stay in the processor's cache while they turn into their gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FLOOR = -1e4
"""Stands for the log-probability of a token of probability 0, so that the loss stays finite."""

CHUNK = 1 << 20
"""Logits in memory at a time: 4 MiB."""


@dataclass(frozen=True)
class LossSums:
    """Sums over N positions, in nats."""

    smoothed: Tensor  # the training loss, differentiable
    nll: Tensor  # -log p of the reference tokens, for the perplexity; no gradient


def projected_loss(hidden: Tensor, projection: nn.Linear, targets: Tensor, smoothing: float, pad_id: int) -> LossSums:
    """hidden [N, d_model] of the positions that are not pad, targets int64 [N]. Zero positions give zero."""
    apply: Any = _ProjectedLoss.apply
    smoothed, nll = apply(hidden, projection.weight, projection.bias, targets, smoothing, pad_id)
    return LossSums(smoothed, nll)


def smoothing_entropy(smoothing: float, vocab_size: int) -> float:
    """Entropy of q in nats: the least value the loss can take, and its distance to the Kullback-Leibler form."""
    if smoothing == 0:
        return 0.0
    rest = smoothing / (vocab_size - 2)
    return -(1 - smoothing) * math.log(1 - smoothing) - smoothing * math.log(rest)


class _ProjectedLoss(torch.autograd.Function):
    """The loss is a scalar, so its gradients are known up to a factor, and are computed with it."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, pad_id: int
    ) -> tuple[Tensor, Tensor]:
        with_gradient = any(ctx.needs_input_grad)
        smoothed, nll = hidden.new_zeros((), dtype=torch.float32), hidden.new_zeros((), dtype=torch.float32)
        gradients = [torch.zeros_like(t) if with_gradient and t is not None else None for t in (hidden, weight, bias)]
        rows = max(CHUNK // weight.shape[0], 1)
        for start in range(0, len(targets), rows):
            part, wanted = hidden[start : start + rows], targets[start : start + rows]
            log_probs = F.log_softmax(F.linear(part, weight, bias).float(), dim=-1)
            sums = _sums(log_probs, wanted, smoothing, pad_id)
            smoothed, nll = smoothed + sums[0], nll + sums[1]
            if with_gradient:
                of_logits = _to_gradient_(log_probs, wanted, smoothing, pad_id)
                _add_gradients(gradients, start, of_logits, part, weight)
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, grad_smoothed: Tensor, grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        of_hidden, of_weight, of_bias = (g if g is None else g * grad_smoothed for g in ctx.saved_tensors)
        return of_hidden, of_weight, of_bias, None, None, None


def _sums(log_probs: Tensor, targets: Tensor, smoothing: float, pad_id: int) -> tuple[Tensor, Tensor]:
    """-Σ q log p and -Σ log p of the targets, over rows of [n, V]."""
    vocab_size = log_probs.shape[-1]
    of_target = log_probs.gather(-1, targets[:, None])[:, 0].clamp_min(FLOOR)
    of_pad = log_probs[:, pad_id].clamp_min(FLOOR)
    of_all = log_probs.sum(-1).clamp_min(FLOOR * vocab_size)
    nll = -of_target.sum()
    return (1 - smoothing) * nll - smoothing / (vocab_size - 2) * (of_all - of_target - of_pad).sum(), nll


def _to_gradient_(log_probs: Tensor, targets: Tensor, smoothing: float, pad_id: int) -> Tensor:
    """The loss's gradient for the logits, p - q, in the memory of log p."""
    rest = smoothing / (log_probs.shape[-1] - 2)
    gradient = log_probs.exp_()
    if rest:
        gradient.sub_(rest)
        gradient[:, pad_id] += rest
    of_target = gradient.new_full((len(targets), 1), -(1 - smoothing - rest))
    return gradient.scatter_add_(-1, targets[:, None], of_target)


def _add_gradients(
    gradients: list[Tensor | None], start: int, of_logits: Tensor, hidden: Tensor, weight: Tensor
) -> None:
    of_hidden, of_weight, of_bias = gradients
    assert of_hidden is not None
    assert of_weight is not None
    of_hidden[start : start + len(hidden)] = of_logits @ weight
    of_weight += of_logits.T @ hidden
    if of_bias is not None:
        of_bias += of_logits.sum(0)
