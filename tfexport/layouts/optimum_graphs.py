"""The graphs of Optimum's layout: an encoder, and one decoder for the first step and all later ones.

Letters: B rows, T new tokens, S source length, P cached length, H heads, D head size, V target vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.export import Dim

from tfexport.graphs.signature import GraphSignature, TensorSignature
from tfexport.graphs.trace import trace_module
from tfexport_train.attention import DecoderCache, KeyValue, scaled_dot_product, split_heads
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.model import DecoderLayer, EncoderDecoder

# Example sizes: all different, none 0 or 1, which torch.export takes as constants.
_BATCH, _TARGET, _SOURCE, _PAST = 2, 3, 7, 5

Past = tuple[Tensor, Tensor, Tensor, Tensor]
"""Of one layer: keys and values of the target [B, H, P, D] and of the source [B, H, S, D]."""


class _Encoder(nn.Module):
    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Both int64 [B, S] -> [B, S, d_model]."""
        return self.model.encode(input_ids, attention_mask.bool())


class _CrossKeyValues(nn.Module):
    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, encoder_hidden_states: Tensor) -> list[KeyValue]:
        """[B, S, d_model] -> two of [B, H, S, D] a layer."""
        return self.model.cross_key_values(encoder_hidden_states)


@dataclass(frozen=True)
class _ManyTokens:
    """The kernels of a step that takes T tokens at once."""

    heads: int
    tokens: int

    def offsets(self, cache: DecoderCache) -> Tensor:
        """Key position minus query position: int64 [1, T, P + T]."""
        past = cache.self_attention[0][0].shape[2]
        return (torch.arange(past + self.tokens) - (past + torch.arange(self.tokens))[:, None])[None]

    def cached_self_attention(
        self, q: Tensor, k: Tensor, v: Tensor, past: KeyValue, lengths: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, KeyValue]:
        """bias [1, 1 or H, T, P + T] hides the future: bool, or with relative positions in it."""
        keys = torch.cat([past[0], split_heads(k, self.heads)], dim=2)
        values = torch.cat([past[1], split_heads(v, self.heads)], dim=2)
        return scaled_dot_product(self.heads, bias)(q, keys, values), (keys, values)

    def cross_attention(self, q: Tensor, memory: KeyValue, source_mask: Tensor) -> Tensor:
        return scaled_dot_product(self.heads, source_mask[:, None, None])(q, *memory)


class _Decoder(nn.Module):
    """T tokens behind P cached ones."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, encoder_attention_mask: Tensor, input_ids: Tensor, past: list[Past]
    ) -> tuple[Tensor, list[KeyValue]]:
        """int64 [B, S] and [B, T] -> logits [B, T, V], and of each layer two of [B, H, P + T, D]."""
        model, tokens = self.model, input_ids.shape[1]
        positions = past[0][0].shape[2] + torch.arange(tokens)
        memories: list[KeyValue] = [(p[2], p[3]) for p in past]
        cache = DecoderCache(positions, [(p[0], p[1]) for p in past], memories, encoder_attention_mask.bool())
        kernels = _ManyTokens(model.config.num_heads, tokens)
        visible = self._visible(kernels.offsets(cache))
        x, present = model.target_embedding(input_ids, positions), []
        for layer, cached, memory in zip(model.decoder_layers, cache.self_attention, memories, strict=True):
            x, with_tokens = cast(DecoderLayer, layer).step(
                x, cached, memory, positions, cache.source_mask, kernels, visible
            )
            present.append(with_tokens)
        # A product of two axes, not three, lets a tied table be stored once.
        logits = model.output(model.decoder_norm(x).flatten(0, 1))
        return logits.view(*input_ids.shape, -1), present

    def _visible(self, offsets: Tensor) -> Tensor:
        seen = (offsets <= 0)[:, None]
        relative = self.model.decoder_relative_bias
        return seen if relative is None else relative(offsets).masked_fill(~seen, -torch.inf)


def trace_optimum_encoder(model: EncoderDecoder, opset: int) -> ir.Model:
    source = torch.ones(_BATCH, _SOURCE, dtype=torch.int64)
    axes = {0: Dim("batch"), 1: Dim("source")}
    signature = GraphSignature(
        (
            TensorSignature("input_ids", "int64", ("batch_size", "encoder_sequence_length")),
            TensorSignature("attention_mask", "int64", ("batch_size", "encoder_sequence_length")),
        ),
        (_hidden(model.config, "last_hidden_state"),),
    )
    shapes = {"input_ids": axes, "attention_mask": axes}
    mask = source.clone()  # one tensor given twice would be traced as one input
    return trace_module(_Encoder(model), (source, mask), shapes, signature, opset)


def trace_steps(model: EncoderDecoder, opset: int) -> ir.Model:
    """T tokens behind P cached ones, with all keys and values given."""
    config = model.config
    batch, source, target, past = Dim("batch"), Dim("source"), Dim("target"), Dim("past", min=0)
    sizes = [(_BATCH, config.num_heads, length, config.head_size) for length in (_PAST, _PAST, _SOURCE, _SOURCE)]
    layers = range(config.num_decoder_layers)
    arguments = (
        torch.ones(_BATCH, _SOURCE, dtype=torch.int64),
        torch.ones(_BATCH, _TARGET, dtype=torch.int64),
        [tuple(torch.zeros(size) for size in sizes) for _ in layers],
    )
    lengths = (past, past, source, source)
    shapes = {
        "encoder_attention_mask": {0: batch, 1: source},
        "input_ids": {0: batch, 1: target},
        "past": [tuple({0: batch, 2: length} for length in lengths) for _ in layers],
    }
    both = "past_decoder_sequence_length + decoder_sequence_length"
    signature = GraphSignature(
        (
            TensorSignature("encoder_attention_mask", "int64", ("batch_size", "encoder_sequence_length")),
            TensorSignature("input_ids", "int64", ("batch_size", "decoder_sequence_length")),
            *(
                _cached(config, f"past_key_values.{i}.{side}.{part}", length)
                for i in layers
                for side, length in (("decoder", "past_decoder_sequence_length"), ("encoder", "encoder_past_length"))
                for part in ("key", "value")
            ),
        ),
        (
            TensorSignature("logits", "float32", ("batch_size", "decoder_sequence_length", config.target_vocab_size)),
            *(_cached(config, f"present.{i}.decoder.{part}", both) for i in layers for part in ("key", "value")),
        ),
    )
    return trace_module(_Decoder(model), arguments, shapes, signature, opset)


def trace_cross(model: EncoderDecoder, opset: int) -> ir.Model:
    """The source's keys and values of every layer."""
    config = model.config
    outputs = (f"cross.{i}.{part}" for i in range(config.num_decoder_layers) for part in ("key", "value"))
    signature = GraphSignature(
        (_hidden(config, "encoder_hidden_states"),),
        tuple(_cached(config, name, "encoder_sequence_length") for name in outputs),
    )
    hidden = torch.zeros(_BATCH, _SOURCE, config.d_model)
    shapes = {"encoder_hidden_states": {0: Dim("batch"), 1: Dim("source")}}
    return trace_module(_CrossKeyValues(model), (hidden,), shapes, signature, opset)


def _hidden(config: EncoderDecoderConfig, name: str) -> TensorSignature:
    return TensorSignature(name, "float32", ("batch_size", "encoder_sequence_length", config.d_model))


def _cached(config: EncoderDecoderConfig, name: str, length: str) -> TensorSignature:
    return TensorSignature(name, "float32", ("batch_size", config.num_heads, length, config.head_size))
