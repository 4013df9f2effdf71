"""How the authors of a checkpoint generate, in the names of our options.

Two differences stay. Where tokens are forbidden, the probabilities of the others are renormalised here, as there with
`renormalize_logits`. And a hypothesis that reaches the limit is cut, while `forced_eos_token_id` ends it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfexport.checkpoints.hugging_face.folder import Folder, Settings

# What has no counterpart here, and the value at which it does nothing.
_UNKNOWN: dict[str, Any] = {
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "penalty_alpha": None,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "min_p": None,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "force_words_ids": None,
    "forced_decoder_ids": None,
    "sequence_bias": None,
    "exponential_decay_length_penalty": None,
    "begin_suppress_tokens": None,
    "guidance_scale": None,
}


@dataclass(frozen=True)
class Generation:
    options: dict[str, Any]
    notes: tuple[str, ...]


def generation(folder: Folder, prefix: int, silent: set[int]) -> Generation:
    """prefix: ids that every output begins with, which Hugging Face counts; silent: ids that are never generated."""
    file = folder.generation
    suppressed, longer = _suppressed(file)
    options = {**_search(file, prefix), **_lengths(file, prefix), **_sampling(file)}
    if wanted := sorted(suppressed - silent):
        options["suppress_tokens"] = wanted
    notes = [
        f"{file.path.name}: {name}={json.dumps(value)} has no counterpart and is left out"
        for name, value in _without_counterpart(file)
    ]
    if longer:
        notes.append(f"{file.path.name}: {longer} bad_words_ids of several tokens are left out")
    return Generation(options, tuple(notes))


def _search(file: Settings, prefix: int) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if (beams := file.integer("num_beams", 1)) > 1:
        options = {"beam_size": beams, "length_penalty": "average", "alpha": file.number("length_penalty", 1.0)}
        if prefix:
            options["length_offset"] = prefix
        if file.values.get("early_stopping") is True:  # "never" is our exact rule, false a guess at it
            options["early_stopping"] = True
    if size := file.integer("no_repeat_ngram_size", 0):
        options["no_repeat_ngram_size"] = size
    if (penalty := file.number("repetition_penalty", 1.0)) != 1.0:
        options["repetition_penalty"] = penalty
    return options


def _lengths(file: Settings, prefix: int) -> dict[str, Any]:
    """Hugging Face counts the start token and the prefix, except in the limits on new tokens."""
    shortest = file.integer("min_length", 0) - 1 - prefix
    shortest = max(shortest, file.integer("min_new_tokens", 0) - prefix)
    longest = file.integer("max_length", 0) - 1 - prefix
    if "max_new_tokens" in file:
        longest = file.integer("max_new_tokens") - prefix
    options: dict[str, Any] = {"min_length": shortest} if shortest > 0 else {}
    if longest > 0:
        options |= {"max_length": longest, "max_length_ratio": None}
    return options


def _sampling(file: Settings) -> dict[str, Any]:
    if not file.flag("do_sample", False) or file.integer("num_beams", 1) > 1:
        return {}
    return {
        "sampling": True,
        "temperature": file.number("temperature", 1.0),
        "top_k": file.integer("top_k", 50),
        "top_p": file.number("top_p", 1.0),
    }


def _suppressed(file: Settings) -> tuple[set[int], int]:
    """Single ids, and how many sequences there are beside them."""
    sequences = file.values.get("bad_words_ids") or []
    single = {ids[0] for ids in sequences if isinstance(ids, list) and len(ids) == 1}
    return single | set(file.values.get("suppress_tokens") or []), len(sequences) - len(single)


def _without_counterpart(file: Settings) -> Iterator[tuple[str, Any]]:
    for name, nothing in _UNKNOWN.items():
        if name in file and file.values[name] not in (nothing, [], 0):
            yield name, file.values[name]
