"""The two graphs as thin wrappers of the model: the same layers that train, with the graph's inputs and outputs.

Letters: B sentences, K beams, R = B*K rows, S source length, P cached length, C capacity, H heads, D head size,
V target vocabulary, N candidates.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.onnx import ops

from tfexport.graphs.kernels import InPlaceKernels, bias_of, fused_self_attention
from tfexport_train.attention import Attend, DecoderCache, GrowingCache, KeyValue
from tfexport_train.model import EncoderDecoder, log_probabilities


class EncoderGraph(nn.Module):
    """Token ids in, cross-attention keys and values of every decoder layer out. Runs once per sentence."""

    def __init__(self, model: EncoderDecoder, fused: bool) -> None:
        super().__init__()
        self.model, self.fused = model, fused

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[KeyValue]:
        """input_ids int64 [B, S], attention_mask int32 [B, S] -> per layer two of [B, H, S, D]."""
        attend = self._fused_attention(attention_mask) if self.fused else None
        memory = self.model.encode(input_ids, attention_mask.bool(), attend)
        return self.model.cross_key_values(memory)

    def _fused_attention(self, mask: Tensor) -> Attend:
        return fused_self_attention(self.model.config.num_heads, mask, self.model.encoder_bias(mask.shape[1]))


class InPlaceDecoderGraph(nn.Module):
    """One step for every row, with the cache written in place. The first step is the same graph at length 0."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        total_length: Tensor,
        encoder_attention_mask: Tensor,
        logit_bias: Tensor,
        num_candidates: Tensor,
        past: list[KeyValue],
        cross: list[KeyValue],
    ) -> tuple[Tensor, Tensor, Tensor, list[KeyValue]]:
        """input_ids int64 [R, 1], past_lengths int32 [R], total_length int32 [1], past [R, H, C, D]."""
        cache = DecoderCache(past_lengths, past, cross, encoder_attention_mask)
        config, source_bias = self.model.config, bias_of(encoder_attention_mask)
        kernels = InPlaceKernels(config.num_heads, config.head_size, total_length, source_bias)
        logits, cache = self.model.step(input_ids, cache, kernels)
        return *_candidates(logits, logit_bias, num_candidates), logits, cache.self_attention


class GrowingDecoderGraph(nn.Module):
    """One step for every row in standard operators; the cache leaves one token longer than it came."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        encoder_attention_mask: Tensor,
        logit_bias: Tensor,
        num_candidates: Tensor,
        past: list[KeyValue],
        cross: list[KeyValue],
    ) -> tuple[Tensor, Tensor, Tensor, list[KeyValue]]:
        """As the in-place form; past [R, H, P, D]."""
        cache = DecoderCache(past_lengths, past, cross, encoder_attention_mask.bool())
        logits, cache = self.model.step(input_ids, cache, GrowingCache(self.model.config.num_heads))
        return *_candidates(logits, logit_bias, num_candidates), logits, cache.self_attention


def _candidates(logits: Tensor, bias: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The `count` largest log-probabilities of every row and their ids, [R, N] each.

    Standard operators, written by name: `count` and the first axis of `bias` are known only when the graph runs.
    """
    biased = ops.symbolic("Add", (logits, bias), dtype=torch.float32, shape=logits.shape)
    scores, ids = ops.symbolic_multi_out(
        "TopK",
        (log_probabilities(biased), count),
        {"axis": -1},
        dtypes=(torch.float32, torch.int64),
        shapes=(logits.shape, logits.shape),
    )
    return scores, ids
