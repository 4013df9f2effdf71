"""Vocabularies that are lists of tokens: vocab.txt, fairseq's dict.txt, OpenNMT's vocabularies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfexport_runtime.tokenizer import WHITE_SPACE
from tfexport_train.checkpoint import TextSide
from tfexport_train.errors import CheckpointError

MAX_BYTES = 256 * 2**20  # of a vocabulary file
FAIRSEQ_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # fairseq's Dictionary puts them before every dict.txt


def read_tokens(path: Path) -> list[str]:
    """One token a line, the line being the id, or a JSON list of them. Raises CheckpointError."""
    text = read_text(path)
    if path.suffix == ".json":
        try:
            values = json.loads(text)
        except ValueError as error:
            raise CheckpointError(f"{path}: not JSON: {error}") from error
        if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
            raise CheckpointError(f"{path}: expected a JSON list of tokens")
        return values
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def read_fairseq_dict(path: Path, special: Sequence[str] = FAIRSEQ_SPECIAL) -> list[str]:
    """`token count` a line, behind fairseq's own four. Raises CheckpointError.

    A token that is there already, and says so by `#fairseq:overwrite`, keeps its later place, as in fairseq.
    """
    tokens = list(special)
    for number, line in enumerate(read_tokens(path), 1):
        token, _, rest = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not rest.lstrip("-").isdigit():
            raise CheckpointError(f"{path}:{number}: expected a token and its count, found {line[:40]!r}")
        tokens.append(token)
    return unique_tokens(tokens)


def read_counted_tokens(path: Path) -> list[str]:
    """OpenNMT's `token<TAB>count`, or only the token, a line. Raises CheckpointError."""
    return [line.partition("\t")[0] for line in read_tokens(path)]


def read_text(path: Path) -> str:
    """Raises CheckpointError for what is too large or not UTF-8."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CheckpointError(f"{path}: larger than {MAX_BYTES // 2**20} MiB, not a vocabulary")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8: {error}") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error


def unique_tokens(tokens: Iterable[str]) -> list[str]:
    """Each token once: of equal ones the last keeps its name, which is what a look-up by name finds."""
    listed = list(tokens)
    last = {token: i for i, token in enumerate(listed)}
    return [token if last[token] == i else f"{token}#{i}" for i, token in enumerate(listed)]


def token_list(tokens: Iterable[str], kind: str = "words") -> TextSide:
    """A side whose text is tokens with a space between (`words`), or characters.

    A token that holds a line break, or equals another, is never found in a text and gets a name that can be written.
    """
    written = unique_tokens(token.replace("\r", "\\r").replace("\n", "\\n") for token in tokens)
    return TextSide(kind, "".join(f"{token}\n" for token in written).encode("utf-8", "surrogatepass"))


def made_of_characters(tokens: Iterable[str]) -> bool:
    """Whether every token that is not special is one character, so that a text is its characters."""
    plain = [token for token in tokens if not (len(token) > 2 and token[0] in "<[" and token[-1] in ">]")]
    return len(plain) > 1 and all(len(token) == 1 and token not in WHITE_SPACE for token in plain)


def number_list(size: int) -> TextSide:
    """Text that is ids in decimal, for a model without a tokenizer."""
    return token_list(map(str, range(size)))
