"""What bundles give on request, from Python: the encoder's states, and what tokens look at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tfexport_runtime.translator import Translator

TEXTS = ["ein kleiner hund", "", "grüne wiese und ball am see"]


def write_further(bundles: Sequence[Path], target: Path) -> None:
    """A list with an entry for each bundle."""
    target.write_text(json.dumps([_further(bundle) for bundle in bundles]), encoding="utf-8")


def _further(bundle: Path) -> dict[str, object]:
    translator = Translator(bundle)
    options = translator.options({"beam_size": 3, "n_best": 2, "max_length": 9})
    attention = [
        [
            {name: weights.tolist() for name, weights in h.attention.items()}
            for h in translation.hypotheses
            if h.attention
        ]
        for translation in translator.translate(TEXTS, options, attention=True)
    ]
    states = [array.tolist() for array in translator.encoder_states(TEXTS)]
    return {"bundle": str(bundle), "texts": TEXTS, "states": states, "attention": attention}
