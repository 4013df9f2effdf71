"""What each field of TranslationOptions is called and means on a command line, for all commands that translate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfexport_runtime.errors import OptionError
from tfexport_runtime.options import LENGTH_PENALTIES, TranslationOptions


@dataclass(frozen=True)
class Flag:
    """`--field-name VALUE`, without a default: what is not given stays as the bundle has it."""

    kind: type[int] | type[float] | type[bool] | type[str]
    group: str
    help: str


# The names are those of the fields; `callback` alone cannot be given on a command line.
GENERATION_FLAGS: Mapping[str, Flag] = {
    "beam_size": Flag(int, "Search", "Beams; 1 is greedy search."),
    "n_best": Flag(int, "Search", "Hypotheses for each line; prints the line's number before each."),
    "length_penalty": Flag(str, "Search", f"How the sum becomes a score: {', '.join(LENGTH_PENALTIES)}."),
    "alpha": Flag(float, "Search", "Exponent of average and gnmt; 0 is no penalty."),
    "length_offset": Flag(int, "Search", "Added to the length by average; 1 counts the start token."),
    "word_reward": Flag(float, "Search", "Added for each token by word_reward."),
    "early_stopping": Flag(bool, "Search", "Stop as soon as enough hypotheses are finished."),
    "min_length": Flag(int, "Length", "Tokens before the end is allowed."),
    "max_length": Flag(int, "Length", "Most tokens, whatever the source."),
    "max_length_ratio": Flag(float, "Length", "Most tokens for each source token, plus --max-length-extra."),
    "max_length_extra": Flag(int, "Length", "Tokens added to the ratio's limit."),
    "sampling": Flag(bool, "Sampling", "Draw tokens at random; --n-best draws several samples."),
    "temperature": Flag(float, "Sampling", "Below 1 sharper, above 1 flatter."),
    "top_k": Flag(int, "Sampling", "Draw from the k likeliest tokens; 0 is all."),
    "top_p": Flag(float, "Sampling", "Draw from the likeliest tokens that make up this probability; 1 is all."),
    "seed": Flag(int, "Sampling", "The same seed gives the same text, in any batch."),
    "no_repeat_ngram_size": Flag(int, "Rules", "No n-gram of this size twice; 0 is off."),
    "repetition_penalty": Flag(float, "Rules", "Above 1 makes tokens that were used less likely."),
    "suppress_tokens": Flag(str, "Rules", "Ids that are never generated, such as 17,42."),
    "prefix_strength": Flag(float, "Rules", "1 forces the prefixes, less only favours them."),
    "truncate_source": Flag(bool, "Work", "Cut a line that is too long instead of refusing it."),
    "max_batch_tokens": Flag(int, "Work", "Source tokens decoded together, padding and beams counted."),
}


def chosen_options(given: Mapping[str, Any], defaults: TranslationOptions) -> TranslationOptions:
    """`given` holds a value, or None, for each flag. Raises OptionError."""
    changes = {name: value for name, value in given.items() if value is not None}
    if "suppress_tokens" in changes:
        changes["suppress_tokens"] = _ids(changes["suppress_tokens"])
    return defaults.with_changes(changes)


def _ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise OptionError(f"--suppress-tokens takes ids parted by commas, not {text!r}") from error
