"""Lines of text in, lines of text out: what a command needs around `Translator.translate`.

A line ends with LF (a CR before it is dropped); no other character ends one. As many lines come out as go in.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from tfexport_runtime.errors import InputError, TruncationWarning
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.translation import Hypothesis, Translation

BLOCK = 2**18  # bytes asked for at once
MAX_LINE_BYTES = 2**20
CHUNK_LINES = 512  # lines translated together at most

Format = Literal["text", "scores", "json"]


class Translates(Protocol):
    """The part of Translator that is used here."""

    def translate(
        self, texts: Sequence[str], options: TranslationOptions, prefixes: Sequence[str] | None = None
    ) -> list[Translation]: ...


@dataclass(frozen=True)
class Lines:
    """A stream of bytes with the name that errors use."""

    stream: BinaryIO
    name: str


def translate_lines(
    translator: Translates,
    source: Lines,
    prefixes: Lines | None,
    options: TranslationOptions,
    warn: Callable[[str], None],
) -> Iterator[list[tuple[int, Translation]]]:
    """Numbers (from 1) and translations of the lines, in order, in chunks as the lines arrive.

    Raises InputError for a line that cannot be translated, and when there are not as many prefixes as lines.
    """
    translator.translate([], options)  # options are checked even where no line comes
    done = 0
    beginnings = _Prefixes(prefixes) if prefixes else None
    for chunk in read_chunks(source):
        begin = beginnings.take(len(chunk)) if beginnings else None
        translations = _translate(translator, chunk, begin, options, source.name, done, warn)
        yield list(enumerate(translations, done + 1))
        done += len(chunk)
    if beginnings:
        beginnings.check_end(done)


def read_chunks(lines: Lines, limit: int = CHUNK_LINES) -> Iterator[list[str]]:
    """Complete lines as they arrive, at most `limit` together, so that a slow pipe gets its answers at once.

    Raises InputError for a line that is not UTF-8 or is longer than MAX_LINE_BYTES.
    """
    done, rest = 0, b""
    while block := _read_available(lines.stream):
        parts = (rest + block).split(b"\n")
        rest = parts.pop()
        for start in range(0, len(parts), limit):
            yield [_decoded(part, lines.name, done + 1 + i) for i, part in enumerate(parts[start : start + limit])]
            done += len(parts[start : start + limit])
        if len(rest) > MAX_LINE_BYTES:
            raise InputError(f"{lines.name}, line {done + 1} is longer than {MAX_LINE_BYTES} bytes; is this text?")
    if rest:
        yield [_decoded(rest, lines.name, done + 1)]


def read_lines(path: Path) -> list[str]:
    """A whole text file, by the same rules. Raises InputError, OSError."""
    with open(path, "rb") as file:
        return [line for chunk in read_chunks(Lines(file, str(path))) for line in chunk]


def formatted(number: int, translation: Translation, form: Format, n_best: int) -> str:
    """What is written for one line of input, ended by LF.

    text: the best hypothesis. scores: its score and a TAB before it. json: an object. With several hypotheses, one
    line each, the number of the input line and a TAB before it.
    """
    if form == "json":
        hypotheses = [_as_dict(h) for h in translation.hypotheses]
        return json.dumps({"line": number, "hypotheses": hypotheses}, ensure_ascii=False) + "\n"
    shown = translation.hypotheses[:n_best]
    columns = [
        ([str(number)] if n_best > 1 else [])
        + ([f"{h.score:.4f}"] if form == "scores" else [])
        + [h.text.replace("\r", " ").replace("\n", " ")]
        for h in shown
    ]
    return "".join("\t".join(row) + "\n" for row in columns)


def _translate(
    translator: Translates,
    texts: list[str],
    prefixes: list[str] | None,
    options: TranslationOptions,
    name: str,
    done: int,
    warn: Callable[[str], None],
) -> list[Translation]:
    """One chunk, with errors and warnings that name the line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            translations = translator.translate(texts, options, prefixes)
        except InputError as error:
            if error.index is None:
                raise
            raise InputError(f"{name}, line {done + error.index + 1} {error.problem}") from error
    for warning in caught:
        w = warning.message
        warn(f"{name}, line {done + w.index + 1} {w.problem}" if isinstance(w, TruncationWarning) else str(w))
    return translations


def _read_available(stream: BinaryIO) -> bytes:
    """What is there now, or the next bytes that come; empty at the end."""
    read1: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    return read1(BLOCK)


def _decoded(line: bytes, name: str, number: int) -> str:
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte {error.start + 1} is 0x{line[error.start]:02x}"
        raise InputError(f"{name}, line {number} is not UTF-8 ({found}); convert it first") from error
    return text.removeprefix("\ufeff") if number == 1 else text


class _Prefixes:
    """The lines of a second stream, taken as the first one needs them. Raises InputError where the counts differ."""

    def __init__(self, lines: Lines) -> None:
        self._name = lines.name
        self._lines = (line for chunk in read_chunks(lines) for line in chunk)
        self._taken = 0

    def take(self, count: int) -> list[str]:
        taken = list(islice(self._lines, count))
        self._taken += len(taken)
        if len(taken) < count:
            raise InputError(f"{self._name}: has {self._taken} lines, fewer than there are lines to translate")
        return taken

    def check_end(self, lines: int) -> None:
        if next(self._lines, None) is not None:
            raise InputError(f"{self._name}: has more than the {lines} lines that there are to translate")


def _as_dict(h: Hypothesis) -> dict[str, object]:
    return {
        "text": h.text,
        "score": h.score,
        "tokens": h.tokens,
        "ids": h.ids,
        "token_scores": h.token_scores,
        "finish_reason": h.finish_reason,
        "truncated": h.truncated,
    }
