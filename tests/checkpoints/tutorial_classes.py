"""The classes of two tutorials, written out from their published descriptions, and two users of nn.Transformer.

They are what an import is compared with, and share no code with the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


def positional_encoding(length: int, width: int) -> Tensor:
    """Sine on even features, cosine on odd. [length, width]"""
    table = torch.zeros(length, width)
    for feature in range(width):
        angle = torch.arange(length) / 10000 ** (2 * (feature // 2) / width)
        table[:, feature] = torch.cos(angle) if feature % 2 else torch.sin(angle)
    return table


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Masked scores are -1e9. q, k, v [B, H, T, D]; mask is broadcast to [B, H, T, S]."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(mask == 0, -1e9).softmax(-1) @ v


def heads_of(x: Tensor, heads: int) -> Tensor:
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def heads_joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


# The Annotated Transformer ---------------------------------------------------------------------------------------


class AnnotatedNorm(nn.Module):
    """Standard deviation with n - 1, eps outside the root."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.b_2


class AnnotatedAttention(nn.Module):
    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.heads = heads
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        projected = zip(self.linears, (query, key, value), strict=False)
        q, k, v = (heads_of(linear(x), self.heads) for linear, x in projected)
        out: Tensor = self.linears[3](heads_joined(attention(q, k, v, mask.unsqueeze(1))))
        return out


class AnnotatedFeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.w_2(self.w_1(x).relu())
        return out


class AnnotatedSublayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = AnnotatedNorm(width)

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        return x + f(self.norm(x))


class AnnotatedLayer(nn.Module):
    def __init__(self, heads: int, width: int, hidden: int, decoder: bool) -> None:
        super().__init__()
        self.self_attn = AnnotatedAttention(heads, width)
        if decoder:
            self.src_attn = AnnotatedAttention(heads, width)
        self.feed_forward = AnnotatedFeedForward(width, hidden)
        self.sublayer = nn.ModuleList(AnnotatedSublayer(width) for _ in range(3 if decoder else 2))

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, mask))
        if memory is not None:
            x = self.sublayer[1](x, lambda y: self.src_attn(y, memory, memory, memory_mask))
        out: Tensor = self.sublayer[-1](x, self.feed_forward)
        return out


class AnnotatedStack(nn.Module):
    def __init__(self, layers: int, heads: int, width: int, hidden: int, decoder: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(AnnotatedLayer(heads, width, hidden, decoder) for _ in range(layers))
        self.norm = AnnotatedNorm(width)

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, *others)
        out: Tensor = self.norm(x)
        return out


class AnnotatedEmbedding(nn.Module):
    def __init__(self, vocab: int, width: int) -> None:
        super().__init__()
        self.lut = nn.Embedding(vocab, width)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.lut(ids) * math.sqrt(self.lut.embedding_dim)
        return out


class AnnotatedPositions(nn.Module):
    pe: Tensor

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.register_buffer("pe", positional_encoding(length, width)[None])

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[:, : x.shape[1]]


class AnnotatedGenerator(nn.Module):
    def __init__(self, width: int, vocab: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, vocab)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.proj(x).log_softmax(-1)
        return out


class AnnotatedEncoderDecoder(nn.Module):
    """forward gives the decoder's states; the generator, called apart, log-probabilities."""

    def __init__(
        self, src_vocab: int, tgt_vocab: int, n: tuple[int, int] = (2, 2), d: int = 16, d_ff: int = 24, h: int = 4
    ) -> None:
        super().__init__()
        self.encoder = AnnotatedStack(n[0], h, d, d_ff, decoder=False)
        self.decoder = AnnotatedStack(n[1], h, d, d_ff, decoder=True)
        self.src_embed = nn.Sequential(AnnotatedEmbedding(src_vocab, d), AnnotatedPositions(d, 60))
        self.tgt_embed = nn.Sequential(AnnotatedEmbedding(tgt_vocab, d), AnnotatedPositions(d, 60))
        self.generator = AnnotatedGenerator(d, tgt_vocab)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        memory = self.encoder(self.src_embed(src), src_mask)
        out: Tensor = self.decoder(self.tgt_embed(tgt), tgt_mask, memory, src_mask)
        return out


def annotated_log_probs(model: AnnotatedEncoderDecoder, source: Tensor, target: Tensor, pad: int) -> Tensor:
    """[B, T, V]"""
    causal = torch.ones(target.shape[1], target.shape[1]).tril()[None]
    states = model(source, target, (source != pad)[:, None], (target != pad)[:, None] & (causal == 1))
    out: Tensor = model.generator(states)
    return out


# The pre-norm Transformer of a blog ------------------------------------------------------------------------------


class BlogAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        parts = ((self.W_q, query), (self.W_k, memory), (self.W_v, memory))
        q, k, v = (heads_of(linear(x), self.heads) for linear, x in parts)
        out: Tensor = self.W_o(heads_joined(attention(q, k, v, mask)))
        return out


class BlogFeedForward(AnnotatedFeedForward):
    """The same names and form."""


class BlogBlock(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int, decoder: bool) -> None:
        super().__init__()
        self.self_attn = BlogAttention(width, heads)
        if decoder:
            self.cross_attn = BlogAttention(width, heads)
            self.norm3 = nn.LayerNorm(width)
        self.ffn = BlogFeedForward(width, hidden)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.decoder = decoder

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        y = self.norm1(x)
        x = x + self.self_attn(y, y, mask)
        if memory is not None:
            x = x + self.cross_attn(self.norm2(x), memory, memory_mask)
        out: Tensor = x + self.ffn((self.norm3 if self.decoder else self.norm2)(x))
        return out


class BlogPositions(AnnotatedPositions):
    """The same buffer."""


class BlogTransformer(nn.Module):
    """forward gives logits; the projection is the target's table."""

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        d_model: int = 16,
        num_heads: int = 4,
        layers: tuple[int, int] = (2, 2),
        d_ff: int = 24,
    ) -> None:
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.src_embedding = nn.Embedding(src_vocab_size, d_model, padding_idx=0)
        self.tgt_embedding = nn.Embedding(tgt_vocab_size, d_model, padding_idx=0)
        self.positional_encoding = BlogPositions(d_model, 50)
        self.encoder_layers = nn.ModuleList(BlogBlock(d_model, num_heads, d_ff, False) for _ in range(layers[0]))
        self.decoder_layers = nn.ModuleList(BlogBlock(d_model, num_heads, d_ff, True) for _ in range(layers[1]))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.fc_out = nn.Linear(d_model, tgt_vocab_size, bias=False)
        self.fc_out.weight = self.tgt_embedding.weight

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        src_mask = (src != 0)[:, None, None]
        tgt_mask = (tgt != 0)[:, None, None] & torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).tril()
        memory = self.positional_encoding(self.src_embedding(src) * self.scale)
        for layer in self.encoder_layers:
            memory = layer(memory, src_mask)
        memory = self.encoder_norm(memory)
        x = self.positional_encoding(self.tgt_embedding(tgt) * self.scale)
        for layer in self.decoder_layers:
            x = layer(x, tgt_mask, memory, src_mask)
        out: Tensor = self.fc_out(self.decoder_norm(x))
        return out


# Users of nn.Transformer -----------------------------------------------------------------------------------------


class SequenceFirstUser(nn.Module):
    """Ids are [length, batch], and every mask comes from outside; positions are a buffer [length, 1, width]."""

    pos_embedding: Tensor

    def __init__(
        self, vocab: tuple[int, int], norm_first: bool, activation: str, layers: tuple[int, int] = (2, 2)
    ) -> None:
        super().__init__()
        self.transformer = nn.Transformer(
            16,
            4,
            *layers,
            24,
            0.1,
            activation=activation,
            norm_first=norm_first,  # type: ignore[arg-type]
        )
        self.generator = nn.Linear(16, vocab[1])
        self.src_tok_emb, self.tgt_tok_emb = nn.Embedding(vocab[0], 16), nn.Embedding(vocab[1], 16)
        self.register_buffer("pos_embedding", positional_encoding(40, 16)[:, None])

    def forward(
        self,
        src: Tensor,
        trg: Tensor,
        src_mask: Tensor,
        tgt_mask: Tensor,
        src_padding_mask: Tensor,
        tgt_padding_mask: Tensor,
        memory_key_padding_mask: Tensor,
    ) -> Tensor:
        a = self.src_tok_emb(src) * 4 + self.pos_embedding[: len(src)]
        b = self.tgt_tok_emb(trg) * 4 + self.pos_embedding[: len(trg)]
        masks = (src_mask, tgt_mask, None, src_padding_mask, tgt_padding_mask, memory_key_padding_mask)
        out: Tensor = self.generator(self.transformer(a, b, *masks))
        return out


class BatchFirstUser(nn.Module):
    """Ids are [batch, length]; learned positions, no scaling, the projection without a bias."""

    def __init__(
        self, vocab: tuple[int, int], norm_first: bool, activation: str, layers: tuple[int, int] = (2, 2)
    ) -> None:
        super().__init__()
        self.enc_embedding, self.dec_embedding = nn.Embedding(vocab[0], 16), nn.Embedding(vocab[1], 16)
        self.enc_position, self.dec_position = nn.Embedding(40, 16), nn.Embedding(40, 16)
        self.net = nn.Transformer(
            16,
            4,
            *layers,
            24,
            0.1,
            activation=activation,
            batch_first=True,
            norm_first=norm_first,  # type: ignore[arg-type]
        )
        self.fc = nn.Linear(16, vocab[1], bias=False)

    def forward(self, src: Tensor, tgt: Tensor, src_key_padding_mask: Tensor | None = None) -> Tensor:
        a = self.enc_embedding(src) + self.enc_position.weight[: src.shape[1]]
        b = self.dec_embedding(tgt) + self.dec_position.weight[: tgt.shape[1]]
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        states = self.net(
            a,
            b,
            tgt_mask=causal,
            src_key_padding_mask=src_key_padding_mask,
            memory_key_padding_mask=src_key_padding_mask,
        )
        out: Tensor = self.fc(states)
        return out


def with_random_weights(model: nn.Module, seed: int = 0) -> nn.Module:
    """In eval mode, norms included: a norm of ones and zeros would hide a wrong one."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4) if parameter.dim() > 1 else nn.init.normal_(parameter, 0.7, 0.3)
    return model.eval()
