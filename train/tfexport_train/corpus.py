"""Parallel text: files to pairs of strings, pairs of strings to pairs of ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tfexport_runtime.tokenizer import Tokenizer
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.errors import ConfigError, DataError
from tfexport_train.settings import DataSettings

TextPair = tuple[str, str]


@dataclass(frozen=True)
class Corpus:
    """The three parts, as (source, target) lines."""

    train: list[TextPair]
    valid: list[TextPair]
    test: list[TextPair]


@dataclass(frozen=True)
class EncodedPairs:
    """Ids of the pairs that a model can take."""

    sources: list[NDArray[np.int64]]  # as the encoder reads them
    targets: list[NDArray[np.int64]]  # start token, text, end token
    too_long: int  # dropped: more than max_positions tokens
    empty: int  # dropped: no text on one side


def load_corpus(data: DataSettings | None) -> Corpus:
    """Raises DataError for text that cannot be used, ConfigError where the settings name none."""
    if data is None:
        raise ConfigError("the configuration has no `data`, which training needs")
    if data.dates is not None:
        from tfexport_train.dates import make_dates

        return make_dates(data.dates)
    train, valid, test = (read_parallel(part) if part else [] for part in (data.train, data.valid, data.test))
    for name, pairs in (("train", train), ("valid", valid)):
        if not pairs:
            raise DataError(f"data.{name} holds no lines")
    return Corpus(train, valid, test)


def read_parallel(files: Sequence[Path]) -> list[TextPair]:
    """Two files of equally many lines, where a TAB is text, or one file with exactly one TAB a line."""
    if len(files) == 1:
        return _read_tsv(files[0])
    sources, targets = read_lines(files[0]), read_lines(files[1])
    if len(sources) != len(targets):
        raise DataError(f"{files[0]} has {len(sources)} lines but {files[1]} has {len(targets)}; they must be parallel")
    return list(zip(sources, targets, strict=True))


def read_lines(file: Path) -> list[str]:
    """Lines end at a line feed alone: U+2028 and the like are text. Raises DataError with file and line."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{file}, line {line}: not UTF-8 ({error.reason}); convert the file first") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _read_tsv(file: Path) -> list[TextPair]:
    pairs = []
    for number, line in enumerate(read_lines(file), 1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise DataError(f"{file}, line {number}: expected source TAB target, found {len(columns) - 1} TABs")
        pairs.append((columns[0], columns[1]))
    return pairs


def encode_pairs(
    pairs: Sequence[TextPair], source: Tokenizer, target: Tokenizer, config: EncoderDecoderConfig
) -> EncodedPairs:
    """Sources end with the end token; targets stand between the start and the end token."""
    encoded = EncodedPairs([], [], 0, 0)
    too_long = empty = 0
    for source_text, target_text in pairs:
        source_ids, target_ids = source.encode(source_text), target.encode(target_text)
        if not source_ids or not target_ids:
            empty += 1
        elif max(len(source_ids), len(target_ids)) + 1 > config.max_positions:
            too_long += 1
        else:
            encoded.sources.append(np.array([*source_ids, config.eos_id]))
            encoded.targets.append(np.array([config.start_id, *target_ids, config.eos_id]))
    return EncodedPairs(encoded.sources, encoded.targets, too_long, empty)
