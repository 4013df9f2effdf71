"""Names, types and shapes of the graphs' inputs and outputs: what the manifest says and every runtime relies on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tfexport.graphs.kernels import in_place_head_size
from tfexport_train.config import EncoderDecoderConfig

Dimension = str | int


@dataclass(frozen=True)
class FixedShape:
    """Sizes of the graphs of the fixed form. Longer texts do not fit; more rows are run one after another."""

    source: int  # S
    target: int  # T, start token counted
    rows: int  # R, beams of all sentences that one run of the decoder takes

    def candidates(self, vocabulary: int) -> int:
        """N: what a beam search of R beams asks for."""
        return min(vocabulary, self.rows + 1)


@dataclass(frozen=True)
class TensorSignature:
    name: str
    dtype: str  # as in numpy
    shape: tuple[Dimension, ...]  # a name where the size varies


@dataclass(frozen=True)
class GraphSignature:
    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]

    def in_half(self) -> GraphSignature:
        """The same with caches of float16."""
        inputs, outputs = (
            tuple(replace(t, dtype="float16") if in_half(t.name) else t for t in tensors)
            for tensors in (self.inputs, self.outputs)
        )
        return GraphSignature(inputs, outputs)

    def with_outputs(self, further: Sequence[TensorSignature]) -> GraphSignature:
        """The same with more outputs behind the others."""
        return GraphSignature(self.inputs, (*self.outputs, *further))


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


def fixed_encoder_signature(config: EncoderDecoderConfig, shape: FixedShape) -> GraphSignature:
    return GraphSignature(
        (
            TensorSignature("input_ids", "int32", (1, shape.source)),
            TensorSignature("attention_mask", "int32", (1, shape.source)),
        ),
        tuple(_layers(config, "present", "encoder", 1, shape.source, config.head_size)),
    )


def fixed_decoder_signature(config: EncoderDecoderConfig, shape: FixedShape) -> GraphSignature:
    rows, vocabulary, size = shape.rows, config.target_vocab_size, config.head_size
    candidates = shape.candidates(vocabulary)
    return GraphSignature(
        (
            TensorSignature("input_ids", "int32", (rows, 1)),
            TensorSignature("past_lengths", "int32", (rows,)),
            TensorSignature("encoder_attention_mask", "int32", (rows, shape.source)),
            TensorSignature("logit_bias", "float32", (1, vocabulary)),
            *_layers(config, "past_key_values", "decoder", rows, shape.target, size),
            *_layers(config, "past_key_values", "encoder", rows, shape.source, size),
        ),
        (
            TensorSignature("candidate_scores", "float32", (rows, candidates)),
            TensorSignature("candidate_ids", "int64", (rows, candidates)),
            TensorSignature("logits", "float32", (rows, vocabulary)),
            *_layers(config, "present", "decoder", rows, shape.target, size),
        ),
    )


def in_half(name: str) -> bool:
    """Of inputs and outputs only the caches: every runtime knows the others as float32."""
    return name.startswith(("past_key_values.", "present."))


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
