"""`golden.json`: inputs with the expected ids and scores, so that every runtime can test itself on the device.

What is expected comes from PyTorch, not from the graphs; in a reduced precision, whose tokens PyTorch cannot know, from
the Python runtime.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tfexport.formats.registry import open_any
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.search import Model
from tfexport_runtime.session import SessionOptions
from tfexport_runtime.translation import Translation, translate
from tfexport_runtime.translator import bundle_vocabularies
from tfexport_train.checkpoint import Checkpoint
from tfexport_train.decoding import TorchStepModel

SEARCHES: tuple[Mapping[str, Any], ...] = (
    {"beam_size": 1, "max_length": 32},
    {"beam_size": 4, "max_length": 24, "n_best": 4, "length_penalty": "average"},
    {"beam_size": 3, "max_length": 24, "n_best": 2, "length_penalty": "gnmt", "alpha": 0.6},
    {"max_length": 24, "sampling": True, "temperature": 0.8, "top_k": 20, "top_p": 0.9, "seed": 7},
)


def golden_json(bundle: Bundle, checkpoint: Checkpoint, texts: Sequence[str]) -> str:
    """The file's content. Options that a case does not name have the defaults of the specification."""
    exact = bundle.manifest.precision == "fp32"
    reference: Model = TorchStepModel(checkpoint.view_model()) if exact else open_any(bundle, SessionOptions(threads=1))
    vocabularies, target = bundle_vocabularies(bundle), bundle.manifest.search_target()
    # Each text alone, as whoever checks a case has it: a reduced precision may round otherwise among others.
    batch = {} if exact else {"max_batch_tokens": 1}
    cases = []
    for changes in SEARCHES:
        options = TranslationOptions(truncate_source=True).with_changes({**changes, **batch})
        translations = translate(reference, vocabularies, target, texts, options)
        for text, translation in zip(texts, translations, strict=True):
            ids = vocabularies.source.encode(text)
            cases.append({"options": dict(changes), "text": text, "source_ids": ids, **_expected(translation)})
    return json.dumps({"format_version": 1, "cases": cases}, ensure_ascii=False, indent=1) + "\n"


def _expected(translation: Translation) -> dict[str, Any]:
    return {
        "hypotheses": [
            {
                "ids": list(h.ids),
                "text": h.text,
                "score": h.score,
                "token_scores": list(h.token_scores),
                "finish_reason": h.finish_reason,
            }
            for h in translation.hypotheses
        ]
    }
