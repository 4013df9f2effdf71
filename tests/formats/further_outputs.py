"""Outputs on request against PyTorch, which computes whole targets and keeps nothing from step to step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tfexport.formats.registry import open_any
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.session import SessionOptions
from tfexport_runtime.translator import Translator, bundle_vocabularies
from tfexport_train.checkpoint import Checkpoint


def assert_further_outputs(
    bundle: Bundle, checkpoint: Checkpoint, texts: Sequence[str], layers: dict[str, int], heads: Sequence[int]
) -> None:
    """layers: names of the bundle's attention outputs, and the decoder layers that they are of."""
    translator = Translator(bundle.folder, SessionOptions(threads=1), engine=open_any)
    model = checkpoint.build_model()
    config, prefix = checkpoint.config, bundle.manifest.target.prefix_ids
    sides = bundle_vocabularies(bundle)
    for beams in (1, 3):
        options = TranslationOptions(beam_size=beams, n_best=beams, max_length=7)
        for text, translation in zip(texts, translator.translate(texts, options, attention=True), strict=True):
            source = torch.tensor([[*sides.before, *sides.source.encode(text), *sides.after]])
            for hypothesis in translation.hypotheses:
                read = torch.tensor([[config.start_id, *prefix, *hypothesis.ids]])
                with torch.inference_mode():
                    weights = model.attention_weights(source, read).cross  # each [1, H, T, S]
                tokens = slice(len(prefix), len(prefix) + len(hypothesis.token_scores))
                assert hypothesis.attention.keys() == layers.keys()
                for name, layer in layers.items():
                    expected = weights[layer][0, heads, tokens].transpose(0, 1)
                    np.testing.assert_allclose(hypothesis.attention[name], expected, atol=1e-5)
            with torch.inference_mode():
                states = model.encode(source, torch.ones_like(source, dtype=torch.bool))[0]
            np.testing.assert_allclose(translator.encoder_states([text])[0], states, atol=1e-5)
    (nothing,) = translator.encoder_states([""])
    assert nothing.shape == (0, config.d_model)
