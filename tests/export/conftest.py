"""Models and bundles of every form, made once for all tests of the exporter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import made_once
from tfexport.export import ExportOptions, export_bundle
from tfexport_runtime.bundle import Bundle, read_bundle
from tfexport_train.checkpoint import Checkpoint, TextSide
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.model import EncoderDecoder

VOCABULARY = 120
SMALL = {
    "d_model": 32,
    "num_heads": 4,
    "d_ff": 48,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "max_positions": 48,
}
# Between them: every norm, both norm positions, every way of tying, biases or none, unequal depths, learned
# and relative positions.
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "paper": ("paper-base", {"num_decoder_layers": 2}),
    "annotated": ("annotated", {"num_encoder_layers": 2, "d_model": 8, "num_heads": 2}),
    "modern": ("modern-base", {"num_encoder_layers": 3, "positions": "learned"}),
    "swiglu": ("modern-swiglu", {"num_decoder_layers": 3, "head_dim": 16, "tie_output": False}),
    "relative": (
        "modern-swiglu",
        {
            "activation": "geglu_tanh",
            "head_dim": 12,
            "positions": "none",
            "relative_buckets": 8,
            "relative_max_distance": 10,
            "start_id": 0,
            "tie_output": False,
        },
    ),
    "gelu": (
        "modern-small",
        {"activation": "gelu", "share_embeddings": True, "output_bias": True, "pad_id": 3, "unk_id": 0},
    ),
}


def make_checkpoint(form: str) -> Checkpoint:
    """Random weights, larger than at the start of training so that outputs are not all alike; a word list."""
    preset, changes = FORMS[form]
    config = EncoderDecoderConfig.preset(preset, VOCABULARY, VOCABULARY, {**SMALL, **changes})
    torch.manual_seed(5)
    weights = {name: tensor * 1.4 for name, tensor in EncoderDecoder(config).state_dict().items()}
    names = {config.pad_id: "<pad>", config.start_id: "<s>", config.eos_id: "</s>", config.unk_id: "<unk>"}
    words = "".join(f"{names.get(i, f'w{i}')}\n" for i in range(VOCABULARY))
    side = TextSide("words", words.encode())
    if form == "swiglu":  # with language codes, as it were
        return Checkpoint(
            config, weights, replace(side, prefix_ids=(5,), suffix_ids=(6, 7)), replace(side, prefix_ids=(8, 9))
        )
    return Checkpoint(config, weights, side, side)


@pytest.fixture(scope="session")
def checkpoint_of() -> Callable[[str], Checkpoint]:
    return cache(make_checkpoint)


@pytest.fixture(scope="session")
def bundle_of(
    checkpoint_of: Callable[[str], Checkpoint], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Bundle]:
    """(form, operators) -> the bundle of it."""

    @cache
    def bundle(form: str, operators: str) -> Bundle:
        def export(path: Path) -> None:
            export_bundle(checkpoint_of(form), path, ExportOptions(operators=operators))  # type: ignore[arg-type]

        return read_bundle(made_once(tmp_path_factory, f"{form}-{operators}", export))

    return bundle
