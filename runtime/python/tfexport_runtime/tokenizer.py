"""Text to ids and back, exactly as the model was trained. See SPEC.md, "Tokenizers"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import sentencepiece

from tfexport_runtime.errors import BundleError

TokenizerKind = Literal["sentencepiece", "words", "characters"]
TOKENIZER_KINDS: tuple[str, ...] = get_args(TokenizerKind)

# Unicode's White_Space, U+200B and U+FEFF. Written out, because languages differ in what they call white space.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a" + (
    "\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_WORD = re.compile(f"[^{WHITE_SPACE}]+")


class Tokenizer(Protocol):
    """One vocabulary. Ids are positions in it."""

    @property
    def size(self) -> int: ...

    def encode(self, text: str) -> list[int]:
        """The ids of the text, without start or end tokens; empty for empty or white-space text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; control tokens of SentencePiece vanish, broken byte runs become U+FFFD."""

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The written form of each id."""


def load_tokenizer(kind: str, data: bytes, unk_id: int) -> Tokenizer:
    """`data` is the file as it lies in the bundle or checkpoint. Raises BundleError."""
    if kind == "sentencepiece":
        return SentencePieceTokenizer(data)
    if kind == "words":
        return TokenListTokenizer(data, unk_id, separator=" ")
    if kind == "characters":
        return TokenListTokenizer(data, unk_id, separator="")
    raise BundleError(f"unknown tokenizer kind {kind!r}; this version knows {', '.join(TOKENIZER_KINDS)}")


def within_vocabulary(tokenizer: Tokenizer, vocab_size: int, unk_id: int) -> Tokenizer:
    """The tokenizer for a model of so many ids: a token that the model lacks is the unknown one."""
    return tokenizer if tokenizer.size <= vocab_size else BoundedTokenizer(tokenizer, vocab_size, unk_id)


@dataclass(frozen=True)
class BoundedTokenizer:
    """A tokenizer that knows more tokens than the model."""

    inner: Tokenizer
    size: int
    unk_id: int

    def encode(self, text: str) -> list[int]:
        return [i if i < self.size else self.unk_id for i in self.inner.encode(text)]

    def decode(self, ids: Sequence[int]) -> str:
        return self.inner.decode(ids)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return self.inner.tokens(ids)


class SentencePieceTokenizer:
    """A SentencePiece model of any type; normalisation and byte fallback are its own."""

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
            self.size: int = self._processor.GetPieceSize()
            self._processor.IdToPiece(list(range(self.size)))  # fails for a piece that is not UTF-8
        except (RuntimeError, TypeError, ValueError) as error:
            raise BundleError(f"not a SentencePiece model: {error}") from error
        if self.size == 0:
            raise BundleError("not a SentencePiece model: it holds no pieces")

    def encode(self, text: str) -> list[int]:
        if not text.strip(WHITE_SPACE):  # a model without normalisation would make tokens of it
            return []
        ids: list[int] = self._processor.EncodeAsIds(text)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._processor.DecodeIds(list(ids))
        return text

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._processor.IdToPiece(i) for i in ids]


@dataclass
class TokenListTokenizer:
    """A plain list, one token a line, the line number being the id; words parted by white space, or characters."""

    data: bytes
    unk_id: int
    separator: Literal[" ", ""]

    def __post_init__(self) -> None:
        try:
            self._tokens = self.data.decode("utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise BundleError(f"token list is not UTF-8: {error}") from error
        if not self.data.strip():
            raise BundleError("token list is empty")
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        if len(self._ids) != len(self._tokens):
            raise BundleError("token list names a token twice")
        self.size = len(self._tokens)

    def encode(self, text: str) -> list[int]:
        parts = _WORD.findall(text) if self.separator else list(text.strip(WHITE_SPACE))
        return [self._ids.get(part, self.unk_id) for part in parts]

    def decode(self, ids: Sequence[int]) -> str:
        return self.separator.join(self._tokens[i] for i in ids)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._tokens[i] for i in ids]
