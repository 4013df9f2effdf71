"""The two graphs with numbers for shapes, in operators that compilers of phones take: NNAPI, Core ML, QNN.

No comparison, no choice by a condition and no scatter: a row's place in its cache is looked up in constant tables, and
the rest is arithmetic. States have two axes, so that projections are Gemm. Nothing stands before a look-up, so that
compilers without one get all that is behind them in one piece.

Letters: S source length, T target length, R rows, H heads, D head size, M = H*D, V target vocabulary, N candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tfexport.graphs.signature import FixedShape
from tfexport_train.attention import Attend, DecoderCache, KeyValue
from tfexport_train.layers import Embedding
from tfexport_train.model import DecoderLayer, EncoderDecoder, log_probabilities

UNSEEN = -1e4
"""Added to a score that must not count: its weight underflows to 0, and half precision still holds the number."""


class FixedEncoderGraph(nn.Module):
    """One sentence: token ids in, cross-attention keys and values of every decoder layer out."""

    positions: Tensor | None

    def __init__(self, model: EncoderDecoder, shape: FixedShape) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("positions", _first_positions(model.source_embedding, shape.source))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[KeyValue]:
        """input_ids int32 [1, S], attention_mask int32 [1, S] -> per layer two of [1, H, S, D]."""
        length = input_ids.shape[1]
        x = _embedded(self.model.source_embedding, input_ids, self.positions)
        attend = self._attend(bias_of(attention_mask, (1, 1, length)), length)
        for layer in self.model.encoder_layers:
            x = layer(x, attend)
        memory = self.model.encoder_norm(x)
        projections = [cast(DecoderLayer, layer).cross_attention for layer in self.model.decoder_layers]
        return [(self._given_out(p.k_proj(memory)), self._given_out(p.v_proj(memory))) for p in projections]

    def _attend(self, source_bias: Tensor, length: int) -> Attend:
        """q, k, v [S, M] -> [S, M]"""
        relative = self.model.encoder_bias(length)
        bias = source_bias if relative is None else source_bias + relative[0]

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            queries, keys, values = (self._heads(x) for x in (q * self.model.config.head_size**-0.5, k, v))
            return ((queries @ keys.transpose(1, 2) + bias).softmax(-1) @ values).transpose(0, 1).reshape(length, -1)

        return attend

    def _heads(self, x: Tensor) -> Tensor:
        """[S, M] -> [H, S, D]"""
        config = self.model.config
        return x.reshape(x.shape[0], config.num_heads, config.head_size).transpose(0, 1)

    def _given_out(self, x: Tensor) -> Tensor:
        """[S, M] -> [1, H, S, D]"""
        config = self.model.config
        return x.reshape(1, x.shape[0], config.num_heads, config.head_size).transpose(1, 2)


class FixedDecoderGraph(nn.Module):
    """One step of R rows. The caches leave in the shape in which they came, with the new token in its place."""

    earlier: Tensor
    newest: Tensor
    positions: Tensor | None

    def __init__(self, model: EncoderDecoder, shape: FixedShape) -> None:
        super().__init__()
        self.model, self.shape = model, shape
        self.register_buffer("positions", _first_positions(model.target_embedding, shape.target))
        newest = torch.eye(shape.target)
        self.register_buffer("newest", newest)  # [length, position]: 1 where the new token goes
        self.register_buffer("earlier", torch.ones_like(newest).tril() - newest)  # 1 on what is in the cache

    def forward(
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        encoder_attention_mask: Tensor,
        logit_bias: Tensor,
        past: list[KeyValue],
        cross: list[KeyValue],
    ) -> tuple[Tensor, Tensor, Tensor, list[KeyValue]]:
        """input_ids int32 [R, 1], past_lengths int32 [R], past [R, H, T, D], cross [R, H, S, D]."""
        model = self.model
        kernels = self._kernels(past_lengths, encoder_attention_mask)
        cache = DecoderCache(past_lengths, past, cross, encoder_attention_mask)
        relative = model.decoder_relative_bias
        bias = relative(kernels.offsets(cache)) if relative is not None else None
        positions = F.embedding(past_lengths, self.positions) if self.positions is not None else None
        x = _embedded(model.target_embedding, input_ids, positions)
        present = []
        for layer, own, memory in zip(model.decoder_layers, past, cross, strict=True):
            step = cast(DecoderLayer, layer).step
            x, with_token = step(x, own, memory, past_lengths, encoder_attention_mask, kernels, bias)
            present.append(with_token)
        logits = model.output(model.decoder_norm(x))
        count = self.shape.candidates(model.config.target_vocab_size)
        scores, ids = log_probabilities(logits + logit_bias).topk(count)
        return scores, ids, logits, present

    def _kernels(self, lengths: Tensor, source_mask: Tensor) -> FixedKernels:
        config, rows, target = self.model.config, self.shape.rows, self.shape.target
        earlier, newest = (F.embedding(lengths, table) for table in (self.earlier, self.newest))
        unseen = bias_of(earlier + newest, (rows, 1, 1, target))
        earlier, newest = (row.reshape(rows, 1, target, 1) for row in (earlier, newest))
        source_bias = bias_of(source_mask, (rows, 1, 1, self.shape.source))
        return FixedKernels(config.num_heads, config.head_size, earlier, newest, unseen, source_bias)


@dataclass(frozen=True)
class FixedKernels:
    """The cached step over buffers of T positions, of which each row uses its own number."""

    heads: int
    head_size: int
    earlier: Tensor  # float32 [R, 1, T, 1], 1 on the row's tokens of before, 0 elsewhere
    newest: Tensor  # float32 [R, 1, T, 1], 1 where the new token goes
    unseen: Tensor  # float32 [R, 1, 1, T], 0 on both, UNSEEN elsewhere
    source_bias: Tensor  # float32 [R, 1, 1, S], likewise of the source

    def offsets(self, cache: DecoderCache) -> Tensor:
        """int32 [R, 1, T]; above 0 behind the new token, where nothing is seen."""
        positions = torch.arange(self.unseen.shape[-1], dtype=torch.int32)
        return positions - cache.lengths.reshape(-1, 1, 1)

    def cached_self_attention(
        self, q: Tensor, k: Tensor, v: Tensor, past: KeyValue, lengths: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, KeyValue]:
        """q, k, v [R, M]; past [R, H, T, D]; bias [R, H, 1, T]. What lies behind a row's tokens leaves as 0."""
        keys, values = (
            buffer * self.earlier + self._heads(x) * self.newest for buffer, x in zip(past, (k, v), strict=True)
        )
        visible = self.unseen if bias is None else self.unseen + bias
        return self._attend(q, keys, values, visible), (keys, values)

    def cross_attention(self, q: Tensor, memory: KeyValue, source_mask: Tensor) -> Tensor:
        """q [R, M]; memory [R, H, S, D]: of every row, as there are no beams in the shapes."""
        return self._attend(q, *memory, self.source_bias)

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        scores = self._heads(q * self.head_size**-0.5) @ keys.transpose(2, 3) + bias
        return (scores.softmax(-1) @ values).reshape(q.shape)

    def _heads(self, x: Tensor) -> Tensor:
        """[R, M] -> [R, H, 1, D]"""
        return x.reshape(x.shape[0], self.heads, 1, self.head_size)


def _first_positions(embedding: Embedding, length: int) -> Tensor | None:
    """[length, d_model]; a copy, so that the rest of the table stays out of the graph."""
    table = embedding.position_table
    return table[:length].detach().clone() if table is not None else None


def _embedded(embedding: Embedding, ids: Tensor, positions: Tensor | None) -> Tensor:
    """As Embedding, of ids with an axis of 1 and rows of the position table: [ids, d_model]."""
    tokens = embedding.tokens(ids)
    x = tokens.reshape(-1, tokens.shape[-1]) * embedding.scale
    out: Tensor = embedding.norm(x if positions is None else x + positions)
    return out


def bias_of(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """1 on what is real, else 0 -> float32 of that shape: 0 there, UNSEEN elsewhere."""
    return ((mask.float() - 1) * -UNSEEN).reshape(shape)
