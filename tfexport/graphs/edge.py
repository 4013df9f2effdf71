"""The two graphs for ExecuTorch: attention written out, sentences and beams as two axes, the cache growing.

Letters: B sentences, K beams, R = B*K rows, S source length, P cached length, H heads, D head size, M = H*D,
V target vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from tfexport.graphs.flat_lists import chosen_attention, flat, pairs
from tfexport.graphs.further_outputs import FurtherOutputs
from tfexport_train.attention import Attend, DecoderCache, KeyValue
from tfexport_train.model import EncoderDecoder

UNSEEN = -1e9
"""Added to a score that must not count: its weight underflows to 0."""


class EdgeEncoder(nn.Module):
    def __init__(self, model: EncoderDecoder, further: FurtherOutputs) -> None:
        super().__init__()
        self.model, self.further = model, further

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """As `Functions.encode`."""
        memory = self.model.encode(input_ids, attention_mask.bool(), self._attend(attention_mask))
        cross = flat(self.model.cross_key_values(memory))
        return [*cross, memory] if self.further.encoder_state else cross

    def _attend(self, mask: Tensor) -> Attend:
        heads, relative = self.model.config.num_heads, self.model.encoder_bias(mask.shape[1])
        bias = _bias_of(mask) if relative is None else _bias_of(mask) + relative

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            attended = _weights(_heads(q, heads), _heads(k, heads), bias) @ _heads(v, heads)
            return attended.transpose(1, 2).reshape(q.shape)

        return attend


class EdgeStep(nn.Module):
    """One step for every row. The first has a cache of length 0."""

    def __init__(self, model: EncoderDecoder, further: FurtherOutputs) -> None:
        super().__init__()
        self.model, self.further = model, further

    def forward(
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        encoder_attention_mask: Tensor,
        past: list[Tensor],
        cross: list[Tensor],
    ) -> list[Tensor]:
        """int64 [B, K], int32 [B, K], int32 [B, S], 2L of [B, K, H, P, D], 2L of [B, H, S, D].

        Returns logits [B, K, V] and 2L of [B, K, H, P + 1, D]; then what the chosen heads of each chosen layer look
        at, [B, K, heads, S].
        """
        batch, beams = input_ids.shape
        rows, config = [tensor.flatten(0, 1) for tensor in past], self.model.config
        cache = DecoderCache(past_lengths.reshape(-1), pairs(rows), pairs(cross), encoder_attention_mask)
        kernels = EdgeKernels(batch, beams, config.num_heads, _bias_of(encoder_attention_mask))
        logits, cache = self.model.step(input_ids.reshape(-1, 1), cache, kernels)
        by_rows = [logits, *flat(cache.self_attention)]
        seen = chosen_attention(kernels.looked_at, self.further, config)
        return [*(tensor.reshape(batch, beams, *tensor.shape[1:]) for tensor in by_rows), *seen]


@dataclass(frozen=True)
class EdgeKernels:
    """The cached step in plain products."""

    batch: int
    beams: int
    heads: int
    source_bias: Tensor  # float32 [B, 1, 1, S]
    looked_at: list[Tensor] = field(default_factory=list)  # weights of each cross-attention, [B, H, K, S]

    def offsets(self, cache: DecoderCache) -> Tensor:
        past = cache.self_attention[0][0].shape[2]
        return torch.arange(-past, 1)[None, None]

    def cached_self_attention(
        self, q: Tensor, k: Tensor, v: Tensor, past: KeyValue, lengths: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, KeyValue]:
        """q, k, v [R, 1, M]; past [R, H, P, D]; bias [1, H, 1, P + 1]."""
        queries, key, value = (x.reshape(-1, self.heads, 1, x.shape[-1] // self.heads) for x in (q, k, v))
        keys, values = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        return (_weights(queries, keys, bias) @ values).reshape(q.shape), (keys, values)

    def cross_attention(self, q: Tensor, memory: KeyValue, source_mask: Tensor) -> Tensor:
        """q [R, 1, M]; memory [B, H, S, D]: the beams of a sentence are query positions of one batch item."""
        queries = q.reshape(self.batch, self.beams, self.heads, -1).transpose(1, 2)
        keys, values = memory
        self.looked_at.append(_weights(queries, keys, self.source_bias))
        return (self.looked_at[-1] @ values).transpose(1, 2).reshape(q.shape)


def _weights(queries: Tensor, keys: Tensor, bias: Tensor | None) -> Tensor:
    """queries [N, H, T, D], keys [N, H, S, D] -> [N, H, T, S]; a bias of that shape is added to the scores."""
    scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(2, 3)
    weights: Tensor = (scores if bias is None else scores + bias).softmax(-1)
    return weights


def _heads(x: Tensor, heads: int) -> Tensor:
    """[N, T, M] -> [N, H, T, D]"""
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def _bias_of(mask: Tensor) -> Tensor:
    """int32 [B, S], 1 on real tokens -> float32 [B, 1, 1, S], 0 there and UNSEEN elsewhere."""
    return ((mask.float() - 1) * -UNSEEN)[:, None, None]
