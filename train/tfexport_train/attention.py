"""How queries meet keys and values: the kernels that the model calls.

The model's layers take the kernel as an argument, so that training, cached decoding, inspection and export run the
same layers and differ in this one place.

Letters: N batch or rows, B sentences, K beams, R = B*K rows, T queries, S source length, P cached length, H heads,
D head size, M = H*D.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(q [N, T, M], k, v) -> [N, T, M]; k and v are [N, S, M], or [N, H, S, D] where a cache holds them."""

KeyValue = tuple[Tensor, Tensor]
"""Keys and values of one layer, each [N, H, length, D]."""


@dataclass(frozen=True)
class DecoderCache:
    """All that a decoding step needs of the past. A value: `step` takes one and returns the next."""

    lengths: Tensor  # int32 [R], tokens already decoded in each row
    self_attention: list[KeyValue]  # per layer [R, H, P, D]
    cross_attention: list[KeyValue]  # per layer [B, H, S, D], stored once per sentence
    source_mask: Tensor  # bool [B, S], True on real tokens

    def select(self, rows: Tensor) -> DecoderCache:
        """The cache whose row r continues the old row `rows[r]`; rows of one sentence stay together. rows [R']."""
        beams = self.lengths.shape[0] // self.source_mask.shape[0]
        sentences = rows[::beams] // beams
        return DecoderCache(
            self.lengths[rows],
            [(k[rows], v[rows]) for k, v in self.self_attention],
            [(k[sentences], v[sentences]) for k, v in self.cross_attention],
            self.source_mask[sentences],
        )


class StepKernels(Protocol):
    """The two attentions of one cached decoding step; the exporter has its own."""

    def offsets(self, cache: DecoderCache) -> Tensor:
        """Position of each key, the new token's among them, minus that of the new token: int [R or 1, 1, P + 1]."""

    def cached_self_attention(
        self, q: Tensor, k: Tensor, v: Tensor, past: KeyValue, lengths: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, KeyValue]:
        """q, k, v [R, 1, M] of the new token; bias [R or 1, H, 1, P + 1] is added to the scores.

        Returns [R, 1, M] and the cache with the token in it.
        """

    def cross_attention(self, q: Tensor, memory: KeyValue, source_mask: Tensor) -> Tensor:
        """q [R, 1, M] against [B, H, S, D]; returns [R, 1, M]."""


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[N, T, H*D] -> [N, H, T, D]"""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[N, H, T, D] -> [N, T, H*D]"""
    return x.transpose(1, 2).flatten(2)


def offsets_between(length: int, device: torch.device) -> Tensor:
    """Key position minus query position within one sequence: int64 [1, length, length]."""
    position = torch.arange(length, device=device)
    return (position - position[:, None])[None]


def scaled_dot_product(heads: int, mask: Tensor | None = None, causal: bool = False, dropout: float = 0.0) -> Attend:
    """PyTorch's fused attention. mask, broadcast to [N, H, T, S]: bool, True where a query may look, or float, added to
    the scores.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x if x.dim() == 4 else split_heads(x, heads) for x in (q, k, v))
        return join_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal))

    return attend


@dataclass
class RecordingAttention:
    """Attention written out, so that its weights can be looked at. Not for speed."""

    heads: int
    weights: list[Tensor] = field(default_factory=list)  # per layer [N, H, T, S]

    def attend(self, mask: Tensor, bias: Tensor | None = None) -> Attend:
        """mask: bool, True where a query may look; bias is added to the scores; both broadcast to [N, H, T, S]."""

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (x if x.dim() == 4 else split_heads(x, self.heads) for x in (q, k, v))
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            scores = scores if bias is None else scores + bias
            self.weights.append(scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0))
            return join_heads(self.weights[-1] @ v)

        return attend


@dataclass(frozen=True)
class GrowingCache:
    """Plain PyTorch: the cache grows by concatenation; all rows are equally long."""

    heads: int

    def offsets(self, cache: DecoderCache) -> Tensor:
        past = cache.self_attention[0][0].shape[2]
        return torch.arange(-past, 1, device=cache.lengths.device)[None, None]

    def cached_self_attention(
        self, q: Tensor, k: Tensor, v: Tensor, past: KeyValue, lengths: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, KeyValue]:
        keys = torch.cat([past[0], split_heads(k, self.heads)], dim=2)
        values = torch.cat([past[1], split_heads(v, self.heads)], dim=2)
        attended = F.scaled_dot_product_attention(split_heads(q, self.heads), keys, values, attn_mask=bias)
        return join_heads(attended), (keys, values)

    def cross_attention(self, q: Tensor, memory: KeyValue, source_mask: Tensor) -> Tensor:
        # The beams of a sentence are query positions of one batch item: memory is never tiled.
        queries = q.reshape(source_mask.shape[0], -1, q.shape[-1])  # [B, K, M]
        attend = scaled_dot_product(self.heads, source_mask[:, None, None])
        return attend(queries, *memory).reshape(q.shape)
