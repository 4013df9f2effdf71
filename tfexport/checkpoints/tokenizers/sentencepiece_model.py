"""A SentencePiece model whose ids are those of another vocabulary.

Many toolkits cut text with SentencePiece and then look the pieces up in a list of their own. The position of a piece in
the model file is its id, and neither how text is cut nor how it is normalised depends on positions: so putting the
pieces in the order of the list gives the toolkit's ids with no look-up.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tfexport_train.errors import CheckpointError

UNUSED = "<unused {}>"  # stands for an id that has no token

# What toolkits call tokens that are no text: <pad>, [MASK], __en__, >>fra<<, and the languages of NLLB and mBART.
_SPECIAL = re.compile(r"<[^<> ]+>|\[[A-Z]+\]|__\w+__|>>.+<<|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}|⁇")


def parse_model(model: bytes) -> Any:
    """The protobuf message of a .model or .spm file. Raises CheckpointError."""
    message = new_model()
    try:
        message.ParseFromString(model)
    except importlib.import_module("google.protobuf.message").DecodeError as error:
        raise CheckpointError("not a SentencePiece model, or a damaged one") from error
    if not message.pieces:
        raise CheckpointError("not a SentencePiece model: it holds no pieces")
    return message


def new_model() -> Any:
    """An empty protobuf message of a SentencePiece model."""
    return importlib.import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()  # generated, without types


def sentencepiece_with_ids(
    model: bytes, vocabulary: Mapping[str, int] | Sequence[str], size: int, unk: str = "<unk>"
) -> bytes:
    """The model with the ids of `vocabulary`: a token's id, or the tokens in order. `size` is that of the embedding.

    Pieces that the vocabulary lacks go behind `size`, where a runtime takes them for the unknown token. Tokens that the
    model lacks are never found in a text; special ones have none, others are written as they are. `unk` is the token
    of the vocabulary for what the model does not know. Raises CheckpointError.
    """
    ids = _token_ids(vocabulary)
    if unk not in ids:
        raise CheckpointError(f"the vocabulary has no unknown token {unk!r}")
    message = parse_model(model)
    pieces = _named_pieces(message, unk)
    placed = _placed(pieces, ids, size)
    del message.pieces[:]
    message.pieces.extend(placed)
    _set_special_ids(message, unk)
    return bytes(message.SerializeToString())


def _token_ids(vocabulary: Mapping[str, int] | Sequence[str]) -> dict[str, int]:
    if isinstance(vocabulary, Mapping):
        ids = dict(vocabulary)
        if len(set(ids.values())) != len(ids):
            raise CheckpointError("the vocabulary gives one id to two tokens")
        return ids
    tokens = list(vocabulary)
    if len(set(tokens)) != len(tokens):
        twice = next(token for i, token in enumerate(tokens) if token in tokens[:i])
        raise CheckpointError(f"the vocabulary names {twice!r} twice")
    return {token: i for i, token in enumerate(tokens)}


def _named_pieces(message: Any, unk: str) -> dict[str, Any]:
    """The pieces by name; the unknown one is called `unk`, as it is in the vocabulary."""
    unknown = message.SentencePiece.UNKNOWN
    pieces = {
        unk if p.type == unknown else p.piece: _renamed(p, unk) if p.type == unknown else p for p in message.pieces
    }
    if len(pieces) != len(message.pieces):
        raise CheckpointError(f"the SentencePiece model names a piece twice, or has another piece called {unk!r}")
    if not any(p.type == unknown for p in message.pieces):
        raise CheckpointError("the SentencePiece model has no unknown piece")
    return pieces


def _renamed(piece: Any, name: str) -> Any:
    renamed = type(piece)()
    renamed.CopyFrom(piece)
    renamed.piece = name
    return renamed


def _placed(pieces: Mapping[str, Any], ids: Mapping[str, int], size: int) -> list[Any]:
    """All pieces, each at its id; ids without a token are filled up as far as something follows them."""
    make = type(next(iter(pieces.values())))
    lacking = [piece for name, piece in pieces.items() if name not in ids]
    length = max(ids.values()) + 1
    placed: list[Any] = [None] * (max(length, size) if lacking else length)
    for token, i in ids.items():
        placed[i] = pieces[token] if token in pieces else _extra(make, token)
    for i, piece in enumerate(placed):
        if piece is None:
            placed[i] = make(piece=UNUSED.format(i), score=0.0, type=make.CONTROL)
    return placed + lacking


def _extra(make: Any, token: str) -> Any:
    """A token that the model does not have."""
    special = _SPECIAL.fullmatch(token) or not token
    return make(piece=token or UNUSED.format("empty"), score=0.0, type=make.CONTROL if special else make.UNUSED)


def _set_special_ids(message: Any, unk: str) -> None:
    """What the model says of its own ids."""
    spec = message.trainer_spec
    spec.unk_piece = unk
    spec.vocab_size = len(message.pieces)
    places = {piece.piece: i for i, piece in enumerate(message.pieces)}
    for name in ("unk", "bos", "eos", "pad"):
        setattr(spec, f"{name}_id", places.get(getattr(spec, f"{name}_piece"), -1))


def piece_names(model: bytes) -> list[str]:
    """The pieces in the order of their ids. Raises CheckpointError."""
    return [piece.piece for piece in parse_model(model).pieces]
