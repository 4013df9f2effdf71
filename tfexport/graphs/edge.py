"""The two graphs for ExecuTorch: attention written out, sentences and beams as two axes, the cache growing.

Letters: B sentences, K beams, R = B*K rows, S source length, P cached length, H heads, D head size, M = H*D,
V target vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tfexport_train.attention import Attend, DecoderCache, KeyValue
from tfexport_train.model import EncoderDecoder

UNSEEN = -1e9
"""Added to a score that must not count: its weight underflows to 0."""


class EdgeEncoder(nn.Module):
    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """int64 and int32 [B, S] -> keys and values of every decoder layer by turns, 2L of [B, H, S, D]."""
        model, config = self.model, self.model.config
        memory = model.encode(input_ids, attention_mask.bool(), self._attend(attention_mask))
        projections = [layer.cross_attention for layer in model.decoder_layers]
        return [_heads(p(memory), config.num_heads) for a in projections for p in (a.k_proj, a.v_proj)]  # type: ignore[union-attr, operator]

    def _attend(self, mask: Tensor) -> Attend:
        heads, relative = self.model.config.num_heads, self.model.encoder_bias(mask.shape[1])
        bias = _bias_of(mask) if relative is None else _bias_of(mask) + relative

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            attended = _attention(_heads(q, heads), _heads(k, heads), _heads(v, heads), bias)
            return attended.transpose(1, 2).reshape(q.shape)

        return attend


class EdgeStep(nn.Module):
    """One step for every row. The first has a cache of length 0."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        encoder_attention_mask: Tensor,
        past: list[Tensor],
        cross: list[Tensor],
    ) -> list[Tensor]:
        """int64 [B, K], int32 [B, K], int32 [B, S], 2L of [B, K, H, P, D], 2L of [B, H, S, D].

        Returns logits [B, K, V] and 2L of [B, K, H, P + 1, D].
        """
        batch, beams = input_ids.shape
        rows = [tensor.flatten(0, 1) for tensor in past]
        cache = DecoderCache(past_lengths.reshape(-1), _pairs(rows), _pairs(cross), encoder_attention_mask)
        kernels = EdgeKernels(batch, beams, self.model.config.num_heads, _bias_of(encoder_attention_mask))
        logits, cache = self.model.step(input_ids.reshape(-1, 1), cache, kernels)
        present = [tensor.reshape(batch, beams, *tensor.shape[1:]) for pair in cache.self_attention for tensor in pair]
        return [logits.reshape(batch, beams, -1), *present]


@dataclass(frozen=True)
class EdgeKernels:
    """The cached step in plain products."""

    batch: int
    beams: int
    heads: int
    source_bias: Tensor  # float32 [B, 1, 1, S]

    def offsets(self, cache: DecoderCache) -> Tensor:
        past = cache.self_attention[0][0].shape[2]
        return torch.arange(-past, 1)[None, None]

    def cached_self_attention(
        self, q: Tensor, k: Tensor, v: Tensor, past: KeyValue, lengths: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, KeyValue]:
        """q, k, v [R, 1, M]; past [R, H, P, D]; bias [1, H, 1, P + 1]."""
        queries, key, value = (x.reshape(-1, self.heads, 1, x.shape[-1] // self.heads) for x in (q, k, v))
        keys, values = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        return _attention(queries, keys, values, bias).reshape(q.shape), (keys, values)

    def cross_attention(self, q: Tensor, memory: KeyValue, source_mask: Tensor) -> Tensor:
        """q [R, 1, M]; memory [B, H, S, D]: the beams of a sentence are query positions of one batch item."""
        queries = q.reshape(self.batch, self.beams, self.heads, -1).transpose(1, 2)
        attended = _attention(queries, *memory, self.source_bias)
        return attended.transpose(1, 2).reshape(q.shape)


def _attention(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """queries [N, H, T, D]; keys, values [N, H, S, D]; bias, broadcast to [N, H, T, S], is added to the scores."""
    scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(2, 3)
    attended: Tensor = (scores if bias is None else scores + bias).softmax(-1) @ values
    return attended


def _heads(x: Tensor, heads: int) -> Tensor:
    """[N, T, M] -> [N, H, T, D]"""
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def _bias_of(mask: Tensor) -> Tensor:
    """int32 [B, S], 1 on real tokens -> float32 [B, 1, 1, S], 0 there and UNSEEN elsewhere."""
    return ((mask.float() - 1) * -UNSEEN)[:, None, None]


def _pairs(flat: list[Tensor]) -> list[KeyValue]:
    return list(zip(flat[::2], flat[1::2], strict=True))
