"""CKPT OUTPUT COMPUTE_TYPE: CTranslate2's own format, written through its specification."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from ctranslate2.specs import common_spec, transformer_spec

from benchmarks.convert.refusal import refuse_unknown_forms
from tfexport_runtime.tokenizer import Tokenizer
from tfexport_train.checkpoint import Checkpoint, load_checkpoint
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.evaluate import search_target
from tfexport_train.layers import sinusoidal_table

Weights = Mapping[str, npt.NDArray[np.float32]]
ACTIVATIONS = {"relu": common_spec.Activation.RELU, "gelu": common_spec.Activation.GELU}


def convert(checkpoint: Checkpoint, output: Path, compute_type: str) -> None:
    config = checkpoint.config
    refuse_unknown_forms(config)
    weights = {name: tensor.float().numpy() for name, tensor in checkpoint.weights.items()}
    spec = transformer_spec.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm_position == "pre",
        activation=ACTIVATIONS[config.activation],
    )
    _fill(spec, weights, config)
    target_words = vocabulary(checkpoint.target.tokenizer(config.unk_id), config.target_vocab_size)
    source_words = vocabulary(checkpoint.source.tokenizer(config.unk_id), config.source_vocab_size)
    spec.register_source_vocabulary(source_words)
    spec.register_target_vocabulary(target_words)
    spec.config.bos_token = spec.config.decoder_start_token = target_words[config.start_id]
    spec.config.eos_token, spec.config.unk_token = target_words[config.eos_id], target_words[config.unk_id]
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.config.layer_norm_epsilon = config.norm_eps
    spec.validate()
    spec.optimize(quantization=None if compute_type == "float32" else compute_type)
    (output / "model").mkdir(parents=True)
    spec.save(str(output / "model"))
    _write_text_side(checkpoint, output, compute_type)
    words = {"source": source_words, "target": target_words}
    (output / "tokens.json").write_text(json.dumps(words), encoding="utf-8")


def vocabulary(tokenizer: Tokenizer, size: int) -> list[str]:
    """One name for each row of the embedding, all different."""
    words = tokenizer.tokens(range(tokenizer.size))
    return [*words, *(f"<nothing {i}>" for i in range(len(words), size))]


def _fill(spec: transformer_spec.TransformerSpec, weights: Weights, config: EncoderDecoderConfig) -> None:
    table = sinusoidal_table(config.max_positions, config.d_model).numpy()
    for side, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        side.scale_embeddings = config.scale_embedding
        side.position_encodings.encodings = table
        if config.norm_position == "pre":
            _norm(side.layer_norm, weights, f"{name}_norm")
        for i, layer in enumerate(side.layer):
            _layer(layer, weights, f"{name}_layers.{i}")
    spec.encoder.embeddings[0].weight = weights["source_embedding.tokens.weight"]
    spec.decoder.embeddings.weight = weights["target_embedding.tokens.weight"]
    spec.decoder.projection.weight = weights["output.weight"]
    if config.output_bias:
        spec.decoder.projection.bias = weights["output.bias"]


def _layer(layer: object, weights: Weights, name: str) -> None:
    own = layer.self_attention  # type: ignore[attr-defined]
    _linear(own.linear[0], weights, *(f"{name}.self_attention.{part}_proj" for part in "qkv"))
    _linear(own.linear[1], weights, f"{name}.self_attention.out_proj")
    _norm(own.layer_norm, weights, f"{name}.self_attention_residual.norm")
    cross = getattr(layer, "attention", None)
    if cross is not None:
        _linear(cross.linear[0], weights, f"{name}.cross_attention.q_proj")
        _linear(cross.linear[1], weights, *(f"{name}.cross_attention.{part}_proj" for part in "kv"))
        _linear(cross.linear[2], weights, f"{name}.cross_attention.out_proj")
        _norm(cross.layer_norm, weights, f"{name}.cross_attention_residual.norm")
    feed_forward = layer.ffn  # type: ignore[attr-defined]
    _linear(feed_forward.linear_0, weights, f"{name}.feed_forward.up")
    _linear(feed_forward.linear_1, weights, f"{name}.feed_forward.down")
    _norm(feed_forward.layer_norm, weights, f"{name}.feed_forward_residual.norm")


def _linear(spec: common_spec.LinearSpec, weights: Weights, *names: str) -> None:
    spec.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
    if f"{names[0]}.bias" in weights:
        spec.bias = np.concatenate([weights[f"{name}.bias"] for name in names])


def _norm(spec: common_spec.LayerNormSpec, weights: Weights, name: str) -> None:
    spec.gamma, spec.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]


def _write_text_side(checkpoint: Checkpoint, output: Path, compute_type: str) -> None:
    """What the contender must know to make tokens of text; it lies beside the model, not in it."""
    config, source = checkpoint.config, checkpoint.source
    about = {
        "compute_type": compute_type,
        "kind": source.kind,
        "unk_id": config.unk_id,
        "before": [config.start_id] * source.add_bos,
        "after": [config.eos_id] * source.add_eos,
        "never_generated": search_target(config, checkpoint.target.tokenizer(config.unk_id).size).never_generated,
    }
    (output / "text.json").write_text(json.dumps(about), encoding="utf-8")
    (output / "tokenizer").write_bytes(source.model)


if __name__ == "__main__":
    convert(load_checkpoint(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3])
