"""The same function as a model of `transformers`: Marian for the paper's form, Pegasus for the pre-norm form.

Both keep their sinusoidal positions as weights, so that the layout of ours can be written there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration, PreTrainedModel

from benchmarks.convert.refusal import refuse_unknown_forms
from tfexport_train.checkpoint import Checkpoint
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.layers import sinusoidal_table

ATTENTION = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
FEED_FORWARD = {"up": "fc1", "down": "fc2"}
NORMS = {
    "self_attention_residual": "self_attn_layer_norm",
    "cross_attention_residual": "encoder_attn_layer_norm",
    "feed_forward_residual": "final_layer_norm",
}


def transformers_model(checkpoint: Checkpoint) -> PreTrainedModel:
    """In eval mode. Raises TfexportError for a form that neither has."""
    config = checkpoint.config
    refuse_unknown_forms(config)
    is_post_norm = config.norm_position == "post"
    model: PreTrainedModel = (
        MarianMTModel(MarianConfig(**_settings(config)))
        if is_post_norm
        else PegasusForConditionalGeneration(PegasusConfig(**_settings(config)))
    )
    model.generation_config.forced_eos_token_id = None
    weights = _renamed(checkpoint)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not missing, missing
    assert not unexpected, unexpected
    return model.eval()


def _settings(config: EncoderDecoderConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.target_vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "max_position_embeddings": config.max_positions,
        "activation_function": config.activation,
        "scale_embedding": config.scale_embedding,
        "tie_word_embeddings": config.tie_output,
        "pad_token_id": config.pad_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.start_id,
        "bos_token_id": config.start_id,
        "forced_eos_token_id": None,
        "num_beams": 1,
    }


def _renamed(checkpoint: Checkpoint) -> dict[str, Tensor]:
    config, weights = checkpoint.config, checkpoint.weights
    table = sinusoidal_table(config.max_positions, config.d_model)
    renamed = {_name(name): tensor for name, tensor in weights.items() if not name.startswith(("source", "target"))}
    for side, name in (("encoder", "source"), ("decoder", "target")):
        renamed[f"model.{side}.embed_positions.weight"] = table
        renamed[f"model.{side}.embed_tokens.weight"] = weights[f"{name}_embedding.tokens.weight"]
    renamed["model.shared.weight"] = weights["target_embedding.tokens.weight"]
    renamed["lm_head.weight"] = weights["output.weight"]
    bias = renamed.pop("output.bias", torch.zeros(config.target_vocab_size))
    renamed["final_logits_bias"] = bias[None]
    renamed.pop("output.weight")
    return renamed


def _name(ours: str) -> str:
    """encoder_layers.0.self_attention.q_proj.weight -> model.encoder.layers.0.self_attn.q_proj.weight"""
    match ours.split("."):
        case [("encoder_layers" | "decoder_layers") as stack, layer, block, part, kind]:
            side = stack.removesuffix("_layers")
            inner = {**ATTENTION, **NORMS}.get(block, "")
            if block in ATTENTION:
                inner += f".{part}"
            elif block == "feed_forward":
                inner = FEED_FORWARD[part]
            return f"model.{side}.layers.{layer}.{inner}.{kind}"
        case [("encoder_norm" | "decoder_norm") as norm, kind]:
            return f"model.{norm.removesuffix('_norm')}.layer_norm.{kind}"
    return ours
