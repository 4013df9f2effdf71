"""The model's functions over flat lists of tensors, for formats that know inputs and outputs by their order.

A list holds keys and values of every decoder layer by turns. Outputs on request stand behind them.

Letters: B sentences, K beams, R = B*K rows, S source length, P cached length, H heads, D head size, L decoder layers,
V target vocabulary, N candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tfexport.graphs.further_outputs import FurtherOutputs
from tfexport_train.attention import DecoderCache, GrowingCache, KeyValue, RecordingAttention
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.model import EncoderDecoder, log_probabilities

# Sizes of the examples: all different, none 0 or 1 (which a tracer takes as constants), rows a multiple of the batch.
BATCH, BEAMS, SOURCE, PAST = 3, 2, 7, 5


class Functions(nn.Module):
    """`encode` and `decode_step`."""

    def __init__(self, model: EncoderDecoder, further: FurtherOutputs) -> None:
        super().__init__()
        self.model, self.further = model, further

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """int64 and int32 [B, S] -> 2L of [B, H, S, D]; then the states [B, S, d_model], if they are wanted."""
        memory = self.model.encode(input_ids, attention_mask.bool())
        # In one piece: native code of the step reads its inputs as they lay in the example.
        cross = [tensor.contiguous() for tensor in flat(self.model.cross_key_values(memory))]
        return [*cross, memory] if self.further.encoder_state else cross

    def decode_step(
        self, input_ids: Tensor, past_lengths: Tensor, source_mask: Tensor, past: list[Tensor], cross: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """int64 [R, 1], int32 [R], int32 [B, S], 2L of [R, H, P, D], 2L of [B, H, S, D].

        Returns logits [R, V] and 2L of [R, H, P + 1, D]; then what the chosen heads of each chosen layer look at,
        [R, heads, S].
        """
        config = self.model.config
        recording = RecordingAttention(config.num_heads)
        plain = GrowingCache(config.num_heads)
        kernels = plain if self.further.attention is None else RecordingCache(config.num_heads, recording)
        cache = DecoderCache(past_lengths, pairs(past), pairs(cross), source_mask.bool())
        logits, cache = self.model.step(input_ids, cache, kernels)
        seen = [weights.flatten(0, 1) for weights in chosen_attention(recording.weights, self.further, config)]
        return logits, [*flat(cache.self_attention), *seen]


class EncoderGraph(Functions):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        return self.encode(input_ids, attention_mask)


class DecoderGraph(Functions):
    def forward(
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        encoder_attention_mask: Tensor,
        logit_bias: Tensor,
        num_candidates: Tensor,
        past: list[Tensor],
        cross: list[Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """input_ids int64 [B, K], logit_bias float32 [1, V], num_candidates int64 [1].

        Sentences and beams are two axes here, because a tracer cannot divide R by B without taking K for more than 1.
        """
        torch._check(input_ids.shape[0] == encoder_attention_mask.shape[0])  # type: ignore[no-untyped-call]
        tokens = input_ids.reshape(-1, 1)
        logits, present = self.decode_step(tokens, past_lengths, encoder_attention_mask, past, cross)
        count: int = num_candidates.item()  # type: ignore[assignment]  # a symbol while it is traced
        torch._check(count >= 1)  # type: ignore[no-untyped-call]
        torch._check(count <= logits.shape[-1])  # type: ignore[no-untyped-call]
        return *candidates(logits, logit_bias, count), logits, present


@dataclass(frozen=True)
class RecordingCache(GrowingCache):
    """With the cross-attention written out, so that its weights can be given out."""

    recording: RecordingAttention

    def cross_attention(self, q: Tensor, memory: KeyValue, source_mask: Tensor) -> Tensor:
        queries = q.reshape(source_mask.shape[0], -1, q.shape[-1])  # [B, K, M]
        return self.recording.attend(source_mask[:, None, None])(queries, *memory).reshape(q.shape)


def chosen_attention(weights: Sequence[Tensor], further: FurtherOutputs, config: EncoderDecoderConfig) -> list[Tensor]:
    """weights: of every layer's cross-attention, [B, H, K, S]. Returns [B, K, heads, S] of each chosen layer."""
    if further.attention is None:
        return []
    by_beam = [weights[layer].transpose(1, 2) for layer in further.attention.outputs(config)]
    if heads := further.attention.heads:
        return [torch.stack([layer[:, :, head] for head in heads], dim=2) for layer in by_beam]
    return by_beam


def candidates(logits: Tensor, logit_bias: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest log-probabilities of every row and their ids, [R, N] each; of equals the lower id first.

    `topk` promises no order of equals. So it ranks float64, where an id makes its log-probability smaller by less than
    float32 tells apart: by 2^-48 of it times the id, which does for 2^23 ids.
    """
    log_probs = log_probabilities(logits + logit_bias)
    smaller = 1 + torch.arange(logits.shape[-1], dtype=torch.float64, device=logits.device) * 2.0**-48
    ids = torch.topk(log_probs.double() * smaller, count, dim=-1)[1]
    return log_probs.gather(-1, ids), ids


def encoder_example() -> tuple[Tensor, Tensor]:
    """Arguments of `Functions.encode`."""
    return torch.ones(BATCH, SOURCE, dtype=torch.int64), torch.ones(BATCH, SOURCE, dtype=torch.int32)


def step_example(config: EncoderDecoderConfig) -> tuple[Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Arguments of `Functions.decode_step`."""
    rows, layers = BATCH * BEAMS, range(2 * config.num_decoder_layers)
    return (
        torch.ones(rows, 1, dtype=torch.int64),
        torch.full((rows,), PAST, dtype=torch.int32),
        torch.ones(BATCH, SOURCE, dtype=torch.int32),
        [torch.zeros(rows, config.num_heads, PAST, config.head_size) for _ in layers],
        [torch.zeros(BATCH, config.num_heads, SOURCE, config.head_size) for _ in layers],
    )


def flat(layers: Sequence[KeyValue]) -> list[Tensor]:
    return [tensor for pair in layers for tensor in pair]


def pairs(tensors: Sequence[Tensor]) -> list[KeyValue]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))
