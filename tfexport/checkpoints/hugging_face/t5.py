"""T5, T5 1.1, Flan-T5 and mT5 (Raffel et al. 2020; Shazeer 2020 for the gates)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from torch import Tensor

from tfexport.checkpoints.hugging_face.bart import embedding_rules, needless_tables
from tfexport.checkpoints.hugging_face.folder import Folder, Settings
from tfexport.checkpoints.hugging_face.layout import Family, Layout
from tfexport.checkpoints.mapping import Rule, same

_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "gated-gelu": "geglu_tanh",  # where these models say gelu, they mean its approximation
    "gated-gelu_new": "geglu_tanh",
    "gated-silu": "swiglu",
    "gated-relu": "reglu",
}
_PARTS = {
    "encoder": ("self_attention", "feed_forward"),
    "decoder": ("self_attention", "cross_attention", "feed_forward"),
}
_NAMES = {"self_attention": "SelfAttention", "cross_attention": "EncDecAttention", "feed_forward": "DenseReluDense"}
_DEFAULT_POSITIONS = 512  # relative positions have no end; buffers and checks need one


def _layout(folder: Folder, tensors: Mapping[str, Tensor], scaled_by_default: bool) -> Layout:
    config = folder.config
    head_size, d_model = config.integer("d_kv", 64), config.integer("d_model")
    layers = config.integer("num_layers")
    scaled = _scaled(config, scaled_by_default)
    fields = {
        "d_model": d_model,
        "num_heads": config.integer("num_heads"),
        "head_dim": head_size,
        "num_encoder_layers": layers,
        "num_decoder_layers": config.integer("num_decoder_layers", layers),
        "d_ff": config.integer("d_ff"),
        "max_positions": config.integer("n_positions", _DEFAULT_POSITIONS),
        "positions": "none",
        "relative_buckets": config.integer("relative_attention_num_buckets", 32),
        "relative_max_distance": config.integer("relative_attention_max_distance", 128),
        "scale_embedding": False,
        "norm": "rms_norm",
        "norm_eps": config.number("layer_norm_epsilon", 1e-6),
        "norm_position": "pre",
        "final_norm": True,
        "activation": config.choice("feed_forward_proj", _ACTIVATIONS, "relu"),
        "attention_bias": False,
        "feed_forward_bias": False,
        "share_embeddings": True,
        "tie_output": _tied(config, tensors),
    }
    # Attention without 1 / sqrt(head size), and the factor on the decoder's output, go into weights.
    rules = (
        *_stack("encoder", head_size),
        *_stack("decoder", head_size, output_scale=d_model**-0.5 if scaled else 1.0),
        *embedding_rules(tensors),
    )
    old = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # of a table that no model reads
    limit = f"max_positions {_DEFAULT_POSITIONS} by default; positions are relative, so it may be more"
    notes = () if "n_positions" in config else (limit,)
    return Layout(fields, rules, drop=(old, *needless_tables(tensors)), notes=notes)


def _scaled(config: Settings, by_default: bool) -> bool:
    """Whether the decoder's output has the factor d_model ** -0.5. It came with tied embeddings until version 5."""
    if not by_default and config.library_version >= 5:
        return False  # mT5 is tied there, and has no factor
    return config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", by_default))


def _tied(config: Settings, tensors: Mapping[str, Tensor]) -> bool:
    """The file decides, unless it contradicts the configuration. From version 5 on, the flag is always true."""
    if "lm_head.weight" not in tensors or same(tensors["lm_head.weight"], tensors.get("shared.weight", Tensor())):
        return True
    return config.flag("tie_word_embeddings", False) and "scale_decoder_outputs" not in config


def _stack(stack: str, head_size: int, output_scale: float = 1.0) -> tuple[Rule, ...]:
    rules = []
    for n, part in enumerate(_PARTS[stack]):
        a, b = f"{stack}.block.{{i}}.layer.{n}", f"{stack}_layers.{{i}}.{part}"
        rules.append(Rule(f"{a}.layer_norm.weight", f"{b}_residual.norm.weight"))
        inner = f"{a}.{_NAMES[part]}"
        if part == "feed_forward":
            names = {"wi": "up", "wi_0": "gate", "wi_1": "up", "wo": "down"}
            rules += [Rule(f"{inner}.{theirs}.weight", f"{b}.{ours}.weight") for theirs, ours in names.items()]
        else:
            rules.append(Rule(f"{inner}.q.weight", f"{b}.q_proj.weight", scale=math.sqrt(head_size)))
            names = {"k": "k_proj", "v": "v_proj", "o": "out_proj"}
            rules += [Rule(f"{inner}.{theirs}.weight", f"{b}.{ours}.weight") for theirs, ours in names.items()]
    bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return (
        *rules,
        Rule(bias, f"{stack}_relative_bias.weight"),
        Rule(f"{stack}.final_layer_norm.weight", f"{stack}_norm.weight", scale=output_scale),
    )


FAMILIES = {
    "t5": Family("T5", partial(_layout, scaled_by_default=True), start_id=0, unk_id=2),
    "mt5": Family("mT5", partial(_layout, scaled_by_default=False), start_id=0, unk_id=2),
}
