"""Names, types and shapes of the graphs' inputs and outputs: what the manifest says and every runtime relies on."""

from __future__ import annotations

from dataclasses import dataclass

from tfexport.graphs.kernels import in_place_head_size
from tfexport_train.config import EncoderDecoderConfig

Dimension = str | int


@dataclass(frozen=True)
class TensorSignature:
    name: str
    dtype: str  # as in numpy
    shape: tuple[Dimension, ...]  # a name where the size varies


@dataclass(frozen=True)
class GraphSignature:
    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]

    def with_output(self, output: TensorSignature) -> GraphSignature:
        """The same with one more output behind the others."""
        return GraphSignature(self.inputs, (*self.outputs, output))


def encoder_signature(config: EncoderDecoderConfig) -> GraphSignature:
    return GraphSignature(
        (
            TensorSignature("input_ids", "int64", ("batch", "source")),
            TensorSignature("attention_mask", "int32", ("batch", "source")),
        ),
        tuple(_layers(config, "present", "encoder", "batch", "source", config.head_size)),
    )


def decoder_signature(config: EncoderDecoderConfig, in_place: bool) -> GraphSignature:
    past, present = ("capacity", "capacity") if in_place else ("past", "past_plus_one")
    size = cache_head_size(config, in_place)
    vocabulary = config.target_vocab_size
    total = (TensorSignature("total_length", "int32", (1,)),) if in_place else ()
    return GraphSignature(
        (
            TensorSignature("input_ids", "int64", ("rows", 1)),
            TensorSignature("past_lengths", "int32", ("rows",)),
            *total,
            TensorSignature("encoder_attention_mask", "int32", ("batch", "source")),
            TensorSignature("logit_bias", "float32", (1, vocabulary)),
            TensorSignature("num_candidates", "int64", (1,)),
            *_layers(config, "past_key_values", "decoder", "rows", past, size),
            *_layers(config, "past_key_values", "encoder", "batch", "source", config.head_size),
        ),
        (
            TensorSignature("candidate_scores", "float32", ("rows", "candidates")),
            TensorSignature("candidate_ids", "int64", ("rows", "candidates")),
            TensorSignature("logits", "float32", ("rows", vocabulary)),
            *_layers(config, "present", "decoder", "rows", present, size),
        ),
    )


def cache_head_size(config: EncoderDecoderConfig, in_place: bool) -> int:
    """Features of a head in the self-attention cache."""
    return in_place_head_size(config.head_size) if in_place else config.head_size


def _layers(
    config: EncoderDecoderConfig, prefix: str, side: str, rows: Dimension, length: Dimension, head_size: int
) -> list[TensorSignature]:
    shape = (rows, config.num_heads, length, head_size)
    return [
        TensorSignature(f"{prefix}.{i}.{side}.{part}", "float32", shape)
        for i in range(config.num_decoder_layers)
        for part in ("key", "value")
    ]
