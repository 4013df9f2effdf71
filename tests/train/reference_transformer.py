"""A second implementation of the model for comparison: one sentence at a time, loops over heads, softmax written out.

It reads the weights by name and shares no code with the package.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tfexport_train.config import EncoderDecoderConfig

Weights = dict[str, Tensor]


def reference_logits(weights: Weights, c: EncoderDecoderConfig, source: list[int], target: list[int]) -> Tensor:
    """source S ids and target T ids, no padding -> logits [T, V]."""
    memory = reference_memory(weights, c, source)
    causal = torch.tensor([[j <= i for j in range(len(target))] for i in range(len(target))])
    x = _embed(weights, c, "target_embedding", target)
    for i in range(c.num_decoder_layers):
        name = f"decoder_layers.{i}"
        x = _residual(
            weights,
            c,
            f"{name}.self_attention",
            x,
            lambda y, n=name: _attention(
                weights, c, f"{n}.self_attention", y, y, causal, "decoder_relative_bias" * bool(c.relative_buckets)
            ),
        )
        x = _residual(
            weights,
            c,
            f"{name}.cross_attention",
            x,
            lambda y, n=name: _attention(weights, c, f"{n}.cross_attention", y, memory),
        )
        x = _residual(
            weights, c, f"{name}.feed_forward", x, lambda y, n=name: _feed_forward(weights, c, f"{n}.feed_forward", y)
        )
    if c.final_norm:
        x = _norm(weights, c, "decoder_norm", x)
    projection = weights["target_embedding.tokens.weight"] if c.tie_output else weights["output.weight"]
    return x @ projection.T + (weights["output.bias"] if c.output_bias else 0)


def reference_memory(weights: Weights, c: EncoderDecoderConfig, source: list[int]) -> Tensor:
    """[S, d_model]"""
    x = _embed(weights, c, "source_embedding", source)
    for i in range(c.num_encoder_layers):
        name = f"encoder_layers.{i}"
        x = _residual(
            weights,
            c,
            f"{name}.self_attention",
            x,
            lambda y, n=name: _attention(
                weights, c, f"{n}.self_attention", y, y, None, "encoder_relative_bias" * bool(c.relative_buckets)
            ),
        )
        x = _residual(
            weights, c, f"{name}.feed_forward", x, lambda y, n=name: _feed_forward(weights, c, f"{n}.feed_forward", y)
        )
    return _norm(weights, c, "encoder_norm", x) if c.final_norm else x


def _embed(weights: Weights, c: EncoderDecoderConfig, name: str, ids: list[int]) -> Tensor:
    rows = []
    for position, token in enumerate(ids):
        row = weights[f"{name}.tokens.weight"][token] * (math.sqrt(c.d_model) if c.scale_embedding else 1)
        if c.positions == "learned":
            row = row + weights[f"{name}.position_table"][position]
        elif c.positions == "sinusoidal":
            angles = [position / 10000 ** (2 * (i // 2) / c.d_model) for i in range(c.d_model)]
            row = row + torch.tensor([math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(angles)])
        rows.append(row)
    embedded = torch.stack(rows)
    return _norm(weights, c, f"{name}.norm", embedded) if c.embedding_norm else embedded


def _residual(weights: Weights, c: EncoderDecoderConfig, name: str, x: Tensor, sublayer) -> Tensor:  # type: ignore[no-untyped-def]
    norm = f"{name}_residual.norm"
    if c.norm_position == "pre":
        return x + sublayer(_norm(weights, c, norm, x))
    return _norm(weights, c, norm, x + sublayer(x))


def _norm(weights: Weights, c: EncoderDecoderConfig, name: str, x: Tensor) -> Tensor:
    rows = []
    for row in x:
        n = len(row)
        if c.norm == "rms_norm":
            rows.append(row / math.sqrt(sum(v * v for v in row.tolist()) / n + c.norm_eps) * weights[f"{name}.weight"])
            continue
        centred = row - row.mean()
        squares = sum(v * v for v in centred.tolist())
        if c.norm == "unbiased_layer_norm":
            scaled = centred / (math.sqrt(squares / (n - 1)) + c.norm_eps)
        else:
            scaled = centred / math.sqrt(squares / n + c.norm_eps)
        rows.append(scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"])
    return torch.stack(rows)


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", torch.zeros(()))


def _bucket(distance: int, buckets: int, c: EncoderDecoderConfig) -> int:
    """T5's, of a distance of 0 or more: half of the buckets hold one distance each."""
    exact = buckets // 2
    if distance < exact:
        return distance
    share = math.log(distance / exact) / math.log(c.relative_max_distance / exact)
    return min(buckets - 1, exact + int(share * (buckets - exact)))


def _relative(weights: Weights, c: EncoderDecoderConfig, name: str, query: int, key: int) -> Tensor:
    """[H]"""
    if name.startswith("decoder"):
        return weights[f"{name}.weight"][_bucket(max(query - key, 0), c.relative_buckets, c)]
    half = c.relative_buckets // 2
    return weights[f"{name}.weight"][_bucket(abs(query - key), half, c) + half * (key > query)]


def _attention(
    weights: Weights,
    c: EncoderDecoderConfig,
    name: str,
    x: Tensor,
    memory: Tensor,
    visible: Tensor | None = None,
    relative: str = "",
) -> Tensor:
    size = c.head_dim or c.d_model // c.num_heads
    q, k, v = (_linear(weights, f"{name}.{p}_proj", y) for p, y in (("q", x), ("k", memory), ("v", memory)))
    heads = []
    for h in range(c.num_heads):
        part = slice(h * size, (h + 1) * size)
        scores = q[:, part] @ k[:, part].T / math.sqrt(size)
        if relative:
            rows = [[_relative(weights, c, relative, i, j)[h] for j in range(len(memory))] for i in range(len(x))]
            scores = scores + torch.tensor(rows)
        if visible is not None:
            scores = torch.where(visible, scores, torch.tensor(-1e9))
        exponentials = torch.exp(scores - scores.max(dim=1, keepdim=True).values)
        heads.append(exponentials / exponentials.sum(dim=1, keepdim=True) @ v[:, part])
    return _linear(weights, f"{name}.out_proj", torch.cat(heads, dim=1))


def _feed_forward(weights: Weights, c: EncoderDecoderConfig, name: str, x: Tensor) -> Tensor:
    up = _linear(weights, f"{name}.up", x)
    gates = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu"}
    if c.activation in gates:
        hidden = _activation(gates[c.activation], _linear(weights, f"{name}.gate", x)) * up
    else:
        hidden = _activation(c.activation, up)
    return _linear(weights, f"{name}.down", hidden)


def _activation(name: str, x: Tensor) -> Tensor:
    if name == "relu":
        return x * (x > 0)
    if name == "silu":
        return x / (1 + torch.exp(-x))
    if name == "gelu":
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
