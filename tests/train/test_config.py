"""The model's configuration: what is refused, and how it is written and read."""

from __future__ import annotations

from typing import Any

import pytest

from tfexport_train.config import PRESETS, EncoderDecoderConfig
from tfexport_train.errors import ConfigError
from tfexport_train.evaluate import search_target


@pytest.mark.parametrize("preset", PRESETS)
def test_json_and_yaml_give_the_same_configuration_back(preset: str) -> None:
    config = EncoderDecoderConfig.preset(preset, 100, 100, {"d_model": 32, "num_heads": 4, "head_dim": 12})
    assert EncoderDecoderConfig.from_json(config.to_json()) == config
    assert EncoderDecoderConfig.from_yaml(config.to_yaml()) == config
    assert EncoderDecoderConfig.from_dict(config.to_dict()) == config


def test_unknown_and_missing_keys_are_named_together() -> None:
    with pytest.raises(ConfigError, match=r"unknown keys d_modle, heads; missing target_vocab_size"):
        EncoderDecoderConfig.from_dict({"source_vocab_size": 10, "heads": 4, "d_modle": 8})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 10, "num_heads": 4}, "d_model 10 is not divisible by num_heads 4"),
        ({"d_model": 9, "num_heads": 3}, "sinusoidal positions need an even d_model"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ({"norm": "batch_norm"}, "norm must be one of layer_norm, rms_norm, unbiased_layer_norm, not 'batch_norm'"),
        ({"eos_id": 0}, "eos_id must differ from pad_id"),
        ({"relative_buckets": 7}, "relative_buckets must be 0 or an even number of at least 4, not 7"),
        ({"relative_buckets": 32, "relative_max_distance": 16}, "relative_max_distance must be above half of"),
        ({"activation": "glu"}, "activation must be one of relu, gelu, .*geglu_tanh, reglu, not 'glu'"),
        ({"unk_id": 10}, "unk_id 10 is outside a vocabulary of 10"),
        ({"num_decoder_layers": 0}, "num_decoder_layers must be at least 1"),
        ({"share_embeddings": True, "target_vocab_size": 12}, "share_embeddings needs equal vocabularies"),
        ({"tie_output": 1}, "tie_output must be bool, not 1"),
        ({"d_ff": "64"}, "d_ff must be int, not '64'"),
        ({"head_dim": 0}, "head_dim must be at least 1"),
        ({"norm_eps": 0.0}, "norm_eps must be positive"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str) -> None:
    values = {"source_vocab_size": 10, "target_vocab_size": 10, **changes}
    with pytest.raises(ConfigError, match=message):
        EncoderDecoderConfig.from_dict(values)


def test_the_end_token_may_start_the_decoder_too() -> None:
    config = EncoderDecoderConfig(10, 10, start_id=2, eos_id=2)
    assert search_target(config, 10).never_generated == (config.pad_id,)
    assert search_target(EncoderDecoderConfig(10, 10, start_id=0), 10).never_generated == (0,)


def test_all_problems_come_in_one_message() -> None:
    with pytest.raises(ConfigError, match=r"d_ff must be at least 1.*dropout must be in"):
        EncoderDecoderConfig(10, 10, d_ff=0, dropout=2.0)


def test_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="choose one of paper-base, paper-big, annotated"):
        EncoderDecoderConfig.preset("base", 10, 10)


def test_presets_are_the_published_shapes() -> None:
    base, big = (EncoderDecoderConfig.preset(f"paper-{n}", 100, 100) for n in ("base", "big"))
    assert (base.d_model, base.num_heads, base.d_ff, base.num_encoder_layers, base.dropout) == (512, 8, 2048, 6, 0.1)
    assert (big.d_model, big.num_heads, big.d_ff, big.num_encoder_layers, big.dropout) == (1024, 16, 4096, 6, 0.3)
    assert base.norm_position == "post"
    assert not base.final_norm
    assert base.share_embeddings
    assert base.tie_output
    annotated = EncoderDecoderConfig.preset("annotated", 100, 90)
    assert (annotated.norm, annotated.norm_eps, annotated.norm_position) == ("unbiased_layer_norm", 1e-6, "pre")
    assert annotated.final_norm
    assert annotated.output_bias
    assert not annotated.tie_output
