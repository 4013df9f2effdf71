"""Attention as fused operators of ONNX Runtime. They exist only in an exported graph; eagerly, PyTorch's own run.

Letters: B sentences, K beams, R = B*K rows, S source length, C capacity, H heads, D head size, M = H*D.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.onnx import ops

from tfexport_train.attention import Attend, DecoderCache, KeyValue


def fused_self_attention(heads: int, mask: Tensor, bias: Tensor | None) -> Attend:
    """com.microsoft::MultiHeadAttention over whole sequences.

    mask int32 [B, S], 1 on real tokens; bias [1, H, S, S] is added to the scores.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _multi_head_attention(heads, q, k, v, mask, bias)

    return attend


def in_place_head_size(head_size: int) -> int:
    """D': GroupQueryAttention takes heads of a multiple of 8 features."""
    return -(-head_size // 8) * 8


@dataclass(frozen=True)
class InPlaceKernels:
    """The cached step with com.microsoft operators: the cache is written in place, with a length per row."""

    heads: int
    head_size: int
    total_length: Tensor  # int32 [1], the longest row's length with the new token
    source_bias: Tensor  # float32 [B, 1, 1, S], see bias_of

    def offsets(self, cache: DecoderCache) -> Tensor:
        """int32 [R, 1, total_length]; above 0 behind a shorter row's new token, where nothing is read."""
        capacity = cache.self_attention[0][0].shape[2]  # while tracing, in the place of a length known at run time only
        positions = ops.symbolic(
            "Range",
            (_scalar(0), self.total_length.reshape(()), _scalar(1)),
            dtype=torch.int32,
            shape=(capacity,),
        )
        return positions[None, None] - cache.lengths[:, None, None]

    def cached_self_attention(
        self, q: Tensor, k: Tensor, v: Tensor, past: KeyValue, lengths: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, KeyValue]:
        """q, k, v [R, 1, M]; past [R, H, C, D'], of which `lengths` [R] are used; D' is D padded."""
        q, k, v = (self._padded(x) for x in (q, k, v))
        no_rotary = (None, None, None)  # two tables and positions
        attended, keys, values = ops.symbolic_multi_out(
            "com.microsoft::GroupQueryAttention",
            (q, k, v, *past, lengths, self.total_length, *(() if bias is None else (*no_rotary, bias))),
            {"num_heads": self.heads, "kv_num_heads": self.heads, "scale": self.head_size**-0.5},
            dtypes=(q.dtype,) * 3,
            shapes=(q.shape, past[0].shape, past[1].shape),
            version=1,
        )
        return self._cut(attended), (keys, values)

    def _padded(self, x: Tensor) -> Tensor:
        """[R, 1, H*D] -> [R, 1, H*D'], zeros behind each head: they change no product."""
        missing = in_place_head_size(self.head_size) - self.head_size
        if not missing:
            return x
        return F.pad(x.view(x.shape[0], 1, self.heads, self.head_size), (0, missing)).flatten(2)

    def _cut(self, x: Tensor) -> Tensor:
        padded = in_place_head_size(self.head_size)
        if padded == self.head_size:
            return x
        return x.view(x.shape[0], 1, self.heads, padded)[..., : self.head_size].flatten(2)

    def cross_attention(self, q: Tensor, memory: KeyValue, source_mask: Tensor) -> Tensor:
        """q [R, 1, M]; memory [B, H, S, D]. For so few queries plain products are faster than MultiHeadAttention."""
        keys, values = memory
        # The beams of a sentence are query positions of one batch item: memory is never tiled.
        queries = q.reshape(keys.shape[0], -1, self.heads, self.head_size).transpose(1, 2)  # [B, H, K, D]
        scores = ops.symbolic(
            "com.microsoft::FusedMatMul",
            (queries, keys),
            {"transB": 1, "alpha": self.head_size**-0.5},
            dtype=q.dtype,
            shape=(*queries.shape[:3], keys.shape[2]),
            version=1,
        )
        attended = (scores + self.source_bias).softmax(-1) @ values
        return attended.transpose(1, 2).reshape(q.shape)


def bias_of(mask: Tensor) -> Tensor:
    """int32 [B, S], 1 on real tokens -> float32 [B, 1, 1, S]: 0 there, and elsewhere so low that nothing is seen."""
    return ((mask - 1).float() * 1e9)[:, None, None]


def _multi_head_attention(
    heads: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None = None
) -> Tensor:
    """q [B, T, M]; k, v [B, S, M] or [B, H, S, D]; mask int32 [B, S]; bias [1, H, T, S]."""
    out: Tensor = ops.symbolic(
        "com.microsoft::MultiHeadAttention",
        (q, k, v, None, mask, *(() if bias is None else (bias,))),
        {"num_heads": heads},
        dtype=q.dtype,
        shape=q.shape,
        version=1,
    )
    return out


def _scalar(value: int) -> Tensor:
    return torch.tensor(value, dtype=torch.int32)
