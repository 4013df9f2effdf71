"""What the weights themselves tell about the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from tfexport.checkpoints.mapping import count_layers, matches, same

TARGET_TABLE = "target_embedding.tokens.weight"
_SOURCE, _OUTPUT = "source_embedding.tokens.weight", "output.weight"
_TABLES = ("source_embedding.position_table", "target_embedding.position_table")
BASICS = (_SOURCE, TARGET_TABLE, "encoder_layers.0.feed_forward.up.weight", "decoder_layers.0.feed_forward.up.weight")
"""Without these there is nothing to begin with."""


def shape_facts(weights: Mapping[str, Tensor], constants: Iterable[str] = ()) -> dict[str, Any]:
    """Fields of EncoderDecoderConfig that follow from weights under our names.

    constants: patterns of names that will be filled in later. They count as being there, but for those with `*`, which
    fill only what the configuration has anyway.
    """
    return {**_sizes(weights), **_parts(weights, list(constants)), **_ties(weights), **_positions(weights)}


def _sizes(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "num_encoder_layers": count_layers(weights, "encoder_layers.{i}.*"),
        "num_decoder_layers": count_layers(weights, "decoder_layers.{i}.*"),
    }
    source = weights.get(_SOURCE)
    target = weights.get(TARGET_TABLE, weights.get(_OUTPUT, source))
    up = weights.get(BASICS[2])
    if source is not None and source.dim() == 2:
        found |= {"source_vocab_size": source.shape[0], "d_model": source.shape[1]}
    if target is not None:
        found["target_vocab_size"] = target.shape[0]
    if up is not None:
        found["d_ff"] = up.shape[0]
    return found


def _parts(weights: Mapping[str, Tensor], constants: list[str]) -> dict[str, Any]:
    def has(name: str) -> bool:
        return name in weights or any("*" not in pattern and matches(pattern, name) for pattern in constants)

    attention = ("self_attention.q_proj.bias", "self_attention.v_proj.bias", "self_attention.out_proj.bias")
    return {
        "attention_bias": any(has(f"encoder_layers.0.{name}") for name in attention),
        "feed_forward_bias": has("encoder_layers.0.feed_forward.up.bias"),
        "output_bias": has("output.bias"),
        "final_norm": has("encoder_norm.weight") or has("decoder_norm.weight"),
        "embedding_norm": has("source_embedding.norm.weight") or has("target_embedding.norm.weight"),
        "relative_buckets": len(weights.get("encoder_relative_bias.weight", ())),
    }


def _ties(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Empty where a table of the target is absent and could be either of the others."""
    source, target, output = (weights.get(name) for name in (_SOURCE, TARGET_TABLE, _OUTPUT))
    if target is None and source is not None and output is not None and not same(source, output):
        return {"share_embeddings": False, "tie_output": True} if source.shape != output.shape else {}
    return {
        "share_embeddings": target is None or (source is not None and same(source, target)),
        "tie_output": output is None or target is None or same(target, output),
    }


def _positions(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    tables = [weights[name] for name in _TABLES if name in weights]
    return {"positions": "learned", "max_positions": min(t.shape[0] for t in tables)} if tables else {}
