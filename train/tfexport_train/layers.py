"""The sub-layers of the model: norms, positions, attention projections, feed-forward, residual connection."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tfexport_train.attention import Attend
from tfexport_train.config import EncoderDecoderConfig


class Dropout(nn.Module):
    """Sets a share p of the features to 0 and scales the others by 1 / (1 - p), while training.

    PyTorch's own draws one number a feature, which on a CPU takes a tenth of a small model's training time. There,
    16 random bits decide, four features from one 64-bit number; p is rounded to 1/65536.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        numbers = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        bits = numbers.view(torch.int16)[: x.numel()].view(x.shape)
        kept = bits >= round(self.p * 65536) - 32768
        dropped: Tensor = x * (kept.to(x.dtype) / (1 - self.p))
        return dropped


class UnbiasedLayerNorm(nn.Module):
    """The Annotated Transformer's norm: standard deviation with n - 1, and eps outside the root.

    Not nn.LayerNorm: exchanging the two changes the output of a trained model.
    """

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)
        if self.training:
            # The root's slope at 0 is infinite: a constant vector would give NaN gradients.
            variance = variance.clamp_min(1e-24)
        return self.weight * centred / (variance.sqrt() + self.eps) + self.bias


def make_norm(config: EncoderDecoderConfig) -> nn.Module:
    if config.norm == "rms_norm":
        return nn.RMSNorm(config.d_model, eps=config.norm_eps)
    if config.norm == "unbiased_layer_norm":
        return UnbiasedLayerNorm(config.d_model, config.norm_eps)
    return nn.LayerNorm(config.d_model, eps=config.norm_eps)


def sinusoidal_table(length: int, features: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same (section 3.5). [length, features]"""
    position = torch.arange(length, dtype=torch.float32, device="cpu")[:, None]  # a constant, as in relative_buckets
    frequency = torch.exp(torch.arange(0, features, 2, device="cpu").float() * -(math.log(10000.0) / features))
    table = torch.empty(length, features, device="cpu")
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table


class Embedding(nn.Module):
    """Token embedding, scaled, plus position, normed if the configuration says so, then dropout."""

    position_table: Tensor | None

    def __init__(self, config: EncoderDecoderConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_model)
        self.scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        if config.positions == "learned":
            self.position_table = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        else:
            sinusoidal = config.positions == "sinusoidal"
            table = sinusoidal_table(config.max_positions, config.d_model) if sinusoidal else None
            self.register_buffer("position_table", table, persistent=False)
        self.norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids int64 [N, T]; positions int, broadcast to [N, T]. Returns [N, T, d_model]."""
        embedded: Tensor = self.tokens(ids) * self.scale
        if self.position_table is not None:
            embedded = embedded + F.embedding(positions, self.position_table)
        out: Tensor = self.dropout(self.norm(embedded))
        return out


def relative_buckets(buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """The bucket of each offset -max_distance .. max_distance, key position minus query position; int64.

    Raffel et al. 2020, section 2.1: a bucket for each of the first distances, then wider ones, on a logarithmic scale
    up to `max_distance`. Keys behind the query have a half of the buckets to themselves, or share that of distance 0.
    """
    offset = torch.arange(-max_distance, max_distance + 1, device="cpu")  # a constant, even in a module without memory
    directed = buckets // 2 if bidirectional else buckets
    distance = offset.abs() if bidirectional else (-offset).clamp_min(0)
    exact = directed // 2
    share = torch.log(distance.clamp_min(1).float() / exact) / math.log(max_distance / exact)
    wide = (exact + (share * (directed - exact)).long()).clamp_max(directed - 1)
    return torch.where(distance < exact, distance, wide) + directed * (bidirectional & (offset > 0))


class RelativeBias(nn.Module):
    """T5's relative positions: what a head adds to a score, by the distance of key and query. One for all layers."""

    buckets: Tensor

    def __init__(self, config: EncoderDecoderConfig, bidirectional: bool) -> None:
        super().__init__()
        self.reach = config.relative_max_distance
        self.weight = nn.Parameter(torch.empty(config.relative_buckets, config.num_heads))
        table = relative_buckets(config.relative_buckets, self.reach, bidirectional)
        self.register_buffer("buckets", table, persistent=False)

    def forward(self, offsets: Tensor) -> Tensor:
        """offsets int [N, T, S], key position minus query position -> [N, H, T, S]."""
        bucket = F.embedding(offsets.clamp(-self.reach, self.reach) + self.reach, self.buckets[:, None])[..., 0]
        return F.embedding(bucket, self.weight).movedim(-1, 1)


class MultiHeadAttention(nn.Module):
    """The four projections around an attention kernel."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        inner, bias = config.num_heads * config.head_size, config.attention_bias
        self.q_proj = nn.Linear(config.d_model, inner, bias)
        self.k_proj = nn.Linear(config.d_model, inner, bias)
        self.v_proj = nn.Linear(config.d_model, inner, bias)
        self.out_proj = nn.Linear(inner, config.d_model, bias)

    def forward(self, x: Tensor, memory: Tensor, attend: Attend) -> Tensor:
        """x [N, T, d_model] looks at memory [N, S, d_model]."""
        out: Tensor = self.out_proj(attend(self.q_proj(x), self.k_proj(memory), self.v_proj(memory)))
        return out

    def with_memory(self, x: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """As forward, where keys and values of the memory were computed before and `attend` knows them."""
        out: Tensor = self.out_proj(attend(self.q_proj(x)))
        return out


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 (section 3.3), with the activation of the configuration."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff, config.feed_forward_bias)
        gated = config.activation in _GATES
        self.gate = nn.Linear(config.d_model, config.d_ff, config.feed_forward_bias) if gated else None
        self.down = nn.Linear(config.d_ff, config.d_model, config.feed_forward_bias)
        self.dropout = Dropout(config.activation_dropout)
        self.activation = {**_ACTIVATIONS, **_GATES}[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        hidden = self.activation(hidden) if self.gate is None else self.activation(self.gate(x)) * hidden
        out: Tensor = self.down(self.dropout(hidden))
        return out


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
# Shazeer 2020, "GLU Variants Improve Transformer": f(x W) * (x V)
_GATES = {
    "swiglu": _ACTIVATIONS["silu"],
    "geglu": _ACTIVATIONS["gelu"],
    "geglu_tanh": _ACTIVATIONS["gelu_tanh"],
    "reglu": _ACTIVATIONS["relu"],
}


class Residual(nn.Module):
    """x + f(norm(x)) in the pre-norm form, norm(x + f(x)) in the paper's, with dropout on f's result."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm_position == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            added: Tensor = x + self.dropout(sublayer(self.norm(x)))
            return added
        out: Tensor = self.norm(x + self.dropout(sublayer(x)))
        return out
