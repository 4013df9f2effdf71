"""The encoder-decoder Transformer: `encode`, `decode` (teacher forcing) and `step` (one token, explicit cache).

Letters: B sentences, K beams, R = B*K rows, S source length, T target length, P cached length, H heads, D head size,
V target vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tfexport_train.attention import (
    Attend,
    DecoderCache,
    GrowingCache,
    KeyValue,
    RecordingAttention,
    StepKernels,
    offsets_between,
    scaled_dot_product,
    split_heads,
)
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.layers import Embedding, FeedForward, MultiHeadAttention, RelativeBias, Residual, make_norm


class EncoderLayer(nn.Module):
    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.feed_forward = FeedForward(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, attend))
        out: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return out


class DecoderLayer(nn.Module):
    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.cross_attention = MultiHeadAttention(config)
        self.feed_forward = FeedForward(config)
        self.self_attention_residual = Residual(config)
        self.cross_attention_residual = Residual(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, memory: Tensor, attend_self: Attend, attend_cross: Attend) -> Tensor:
        """x [B, T, d_model], memory [B, S, d_model]."""
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, attend_self))
        x = self.cross_attention_residual(x, lambda y: self.cross_attention(y, memory, attend_cross))
        out: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return out

    def step(
        self,
        x: Tensor,
        past: KeyValue,
        memory: KeyValue,
        lengths: Tensor,
        source_mask: Tensor,
        kernels: StepKernels,
        bias: Tensor | None,
    ) -> tuple[Tensor, KeyValue]:
        """x [R, 1, d_model] of the newest token; bias as in StepKernels."""
        present: list[KeyValue] = []

        def attend_self(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            attended, with_token = kernels.cached_self_attention(q, k, v, past, lengths, bias)
            present.append(with_token)
            return attended

        def attend_cross(q: Tensor) -> Tensor:
            return kernels.cross_attention(q, memory, source_mask)

        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, attend_self))
        x = self.cross_attention_residual(x, lambda y: self.cross_attention.with_memory(y, attend_cross))
        x = self.feed_forward_residual(x, self.feed_forward)
        return x, present[0]


class EncoderDecoder(nn.Module):
    """An encoder-decoder Transformer of the form that its configuration describes."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = Embedding(config, config.source_vocab_size)
        self.target_embedding = Embedding(config, config.target_vocab_size)
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.encoder_norm = make_norm(config) if config.final_norm else nn.Identity()
        self.decoder_norm = make_norm(config) if config.final_norm else nn.Identity()
        self.encoder_relative_bias = RelativeBias(config, bidirectional=True) if config.relative_buckets else None
        self.decoder_relative_bias = RelativeBias(config, bidirectional=False) if config.relative_buckets else None
        self.output = nn.Linear(config.d_model, config.target_vocab_size, config.output_bias)
        self.tie()
        self._initialise()

    def tie(self) -> None:
        """One parameter for the tables that the configuration shares."""
        if self.config.share_embeddings:
            self.target_embedding.tokens.weight = self.source_embedding.tokens.weight
        if self.config.tie_output:
            self.output.weight = self.target_embedding.tokens.weight

    def encode(self, source: Tensor, source_mask: Tensor, attend: Attend | None = None) -> Tensor:
        """source int64 [B, S], source_mask bool [B, S] (True on real tokens) -> [B, S, d_model]."""
        attend = attend or self._attend(source_mask[:, None, None], bias=self.encoder_bias(source.shape[1]))
        x = self.source_embedding(source, torch.arange(source.shape[1], device=source.device))
        for layer in self.encoder_layers:
            x = layer(x, attend)
        out: Tensor = self.encoder_norm(x)
        return out

    def encoder_bias(self, length: int) -> Tensor | None:
        """What relative positions add to the encoder's self-attention scores: [1, H, length, length]."""
        return _bias_within(self.encoder_relative_bias, length)

    def decode(self, memory: Tensor, source_mask: Tensor, target: Tensor) -> Tensor:
        """Teacher forcing: target int64 [B, T], beginning with the start token -> logits [B, T, V].

        Position t sees the target up to and including t. Padding behind a target needs no mask: no real position
        looks that far.
        """
        logits: Tensor = self.output(self.decode_hidden(memory, source_mask, target))
        return logits

    def decode_hidden(self, memory: Tensor, source_mask: Tensor, target: Tensor) -> Tensor:
        """As decode, up to the states that `output` turns into logits: [B, T, d_model].

        A loss projects only the positions it counts; with a large vocabulary that product is most of the work.
        """
        attend_self = self._attend(causal=True, bias=_bias_within(self.decoder_relative_bias, target.shape[1]))
        attend_cross = self._attend(source_mask[:, None, None])
        return self._decode(memory, target, attend_self, attend_cross)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """source int64 [B, S] and target int64 [B, T], padded with pad_id -> logits [B, T, V]."""
        mask = source != self.config.pad_id
        return self.decode(self.encode(source, mask), mask, target)

    def cross_key_values(self, memory: Tensor) -> list[KeyValue]:
        """Keys and values of the memory for every decoder layer, each [B, H, S, D]: computed once per sentence."""
        heads = self.config.num_heads
        projections = [cast(DecoderLayer, layer).cross_attention for layer in self.decoder_layers]
        return [(split_heads(p.k_proj(memory), heads), split_heads(p.v_proj(memory), heads)) for p in projections]

    def start(self, source: Tensor, source_mask: Tensor, beams: int = 1) -> DecoderCache:
        """Encodes source [B, S] and returns the cache of length 0 for B * beams rows."""
        memory = self.encode(source, source_mask)
        rows = source.shape[0] * beams
        empty = memory.new_zeros(rows, self.config.num_heads, 0, self.config.head_size)
        return DecoderCache(
            torch.zeros(rows, dtype=torch.int32, device=source.device),
            [(empty, empty)] * self.config.num_decoder_layers,
            self.cross_key_values(memory),
            source_mask,
        )

    def step(
        self, tokens: Tensor, cache: DecoderCache, kernels: StepKernels | None = None
    ) -> tuple[Tensor, DecoderCache]:
        """The newest token of every row, int64 [R, 1] -> logits [R, V] of the next one, and the cache after it."""
        kernels = kernels or GrowingCache(self.config.num_heads)
        relative = self.decoder_relative_bias
        bias = relative(kernels.offsets(cache)) if relative is not None else None
        x = self.target_embedding(tokens, cache.lengths[:, None])
        present = []
        for layer, past, memory in zip(self.decoder_layers, cache.self_attention, cache.cross_attention, strict=True):
            x, with_token = cast(DecoderLayer, layer).step(
                x, past, memory, cache.lengths, cache.source_mask, kernels, bias
            )
            present.append(with_token)
        logits: Tensor = self.output(self.decoder_norm(x)[:, 0])
        return logits, DecoderCache(cache.lengths + 1, present, cache.cross_attention, cache.source_mask)

    def attention_weights(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Who looked at whom. source [B, S], target [B, T] as in forward; slow, for looking at."""
        heads = self.config.num_heads
        real = source != self.config.pad_id
        mask = real[:, None, None]
        length = target.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=target.device).tril()
        encoder, decoder, cross = (RecordingAttention(heads) for _ in range(3))
        memory = self.encode(source, real, encoder.attend(mask, self.encoder_bias(source.shape[1])))
        bias = _bias_within(self.decoder_relative_bias, length)
        self._decode(memory, target, decoder.attend(causal, bias), cross.attend(mask))
        return AttentionWeights(encoder.weights, decoder.weights, cross.weights)

    def _decode(self, memory: Tensor, target: Tensor, attend_self: Attend, attend_cross: Attend) -> Tensor:
        x = self.target_embedding(target, torch.arange(target.shape[1], device=target.device))
        for layer in self.decoder_layers:
            x = layer(x, memory, attend_self, attend_cross)
        out: Tensor = self.decoder_norm(x)
        return out

    def _attend(self, mask: Tensor | None = None, causal: bool = False, bias: Tensor | None = None) -> Attend:
        """bias [1, H, T, S] of relative positions; the mask then becomes a part of it."""
        if bias is not None:
            visible = torch.ones_like(bias, dtype=torch.bool).tril() if mask is None else mask
            mask, causal = bias.masked_fill(~visible, -torch.inf), False
        dropout = self.config.attention_dropout if self.training else 0.0
        return scaled_dot_product(self.config.num_heads, mask, causal, dropout)

    def _initialise(self) -> None:
        """Xavier uniform for every matrix (Annotated Transformer); N(0, 1/d) for tables that are tied or scaled.

        A tied table serves look-up and projection: with Xavier's range the first logits of a large vocabulary would
        be near zero and, scaled by sqrt(d), the embeddings still of unit size.
        """
        for name, parameter in self.named_parameters():
            if name.endswith("position_table"):
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("tokens.weight") and self.config.tie_output:
                nn.init.normal_(parameter, std=self.config.d_model**-0.5)
            elif parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith(("proj.bias", "up.bias", "gate.bias", "down.bias", "output.bias")):
                nn.init.zeros_(parameter)


def _bias_within(relative: nn.Module | None, length: int) -> Tensor | None:
    """[1, H, length, length]"""
    if relative is None:
        return None
    bias: Tensor = relative(offsets_between(length, next(relative.parameters()).device))
    return bias


@dataclass(frozen=True)
class AttentionWeights:
    """One tensor a layer: encoder [B, H, S, S], decoder [B, H, T, T], cross [B, H, T, S]."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


def log_probabilities(logits: Tensor) -> Tensor:
    """Natural logarithm of the softmax, in float32 whatever the model computes in."""
    return F.log_softmax(logits.float(), dim=-1)
