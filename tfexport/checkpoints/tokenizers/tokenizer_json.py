"""Hugging Face's tokenizer.json as a SentencePiece model with the same ids, where the two do the same.

They do for what was made from a SentencePiece model: Unigram, or BPE with all merges of its pieces, over words that
begin with ▁, after SentencePiece's own normalisation. Everything else is refused with the reason.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfexport.checkpoints.tokenizers.sentencepiece_model import UNUSED, new_model
from tfexport.checkpoints.tokenizers.tokens import read_text, token_list
from tfexport_train.checkpoint import TextSide
from tfexport_train.errors import CheckpointError

SPACE = "▁"
WAY_OUT = "give a SentencePiece model with --source-tokenizer, or work with ids by --ids"


class _UnlikeError(Exception):
    """What SentencePiece does not do."""


@dataclass
class _Spaces:
    """How white space becomes ▁."""

    dummy_prefix: bool = False  # ▁ before the text
    collapse: bool = False  # runs become one, those at the ends nothing


def read_tokenizer_json(path: Path) -> TextSide:
    """Ids and tokens as in the file. Special tokens in a text are text, unlike there. Raises CheckpointError."""
    try:
        values = json.loads(read_text(path))
        model = values["model"]
        if model.get("type", _type_of(model)) == "WordLevel":
            return _word_list(values)
        return TextSide("sentencepiece", _sentencepiece(values))
    except _UnlikeError as error:
        raise CheckpointError(f"{path}: {error}; {WAY_OUT}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: not a tokenizer.json: {type(error).__name__}: {error}; {WAY_OUT}") from error


def _type_of(model: Mapping[str, Any]) -> str:
    """Old files do not say; only BPE has merges, only Unigram a list of scores."""
    if "merges" in model:
        return "BPE"
    return "Unigram" if isinstance(model["vocab"], list) else "WordPiece or WordLevel"


def _sentencepiece(values: Mapping[str, Any]) -> bytes:
    model = values["model"]
    kind = model.get("type") or _type_of(model)
    if _is_byte_level(values):
        raise _UnlikeError("byte-level BPE, as in GPT-2 and BART, is not among the tokenizers of the runtimes")
    message = new_model()
    spaces = _read_pre_tokenizer(values.get("pre_tokenizer"))
    charsmap = _read_normalizer(values.get("normalizer"), spaces)
    if kind == "Unigram":
        message.trainer_spec.model_type = message.trainer_spec.UNIGRAM
        scores = [(str(piece), float(score)) for piece, score in model["vocab"]]
        unk = scores[model["unk_id"]][0] if model.get("unk_id") is not None else None
    elif kind == "BPE":
        message.trainer_spec.model_type = message.trainer_spec.BPE
        scores, unk = _bpe_scores(model), model.get("unk_token")
    else:
        raise _UnlikeError(f"{kind} is not what SentencePiece does")
    message.trainer_spec.byte_fallback = bool(model.get("byte_fallback"))
    _add_pieces(message, scores, unk, values.get("added_tokens") or [])
    message.normalizer_spec.name = "nmt_nfkc" if charsmap else "identity"
    message.normalizer_spec.precompiled_charsmap = charsmap
    message.normalizer_spec.add_dummy_prefix = spaces.dummy_prefix
    message.normalizer_spec.remove_extra_whitespaces = spaces.collapse
    message.normalizer_spec.escape_whitespaces = True
    return bytes(message.SerializeToString())


def _is_byte_level(values: Mapping[str, Any]) -> bool:
    """It cuts words by a pattern of its own and joins bytes, of which SentencePiece does neither."""
    steps = [step["type"] for step in _steps(values.get("pre_tokenizer"), "pretokenizers")]
    return "ByteLevel" in steps or "Ġ" in values["model"]["vocab"]


# White space and normalisation


def _steps(part: Mapping[str, Any] | None, inner: str) -> Iterator[Mapping[str, Any]]:
    """The parts of a sequence, or the one that there is."""
    if part is None:
        return
    if part["type"] == "Sequence":
        for step in part[inner]:
            yield from _steps(step, inner)
    else:
        yield part


def _read_pre_tokenizer(part: Mapping[str, Any] | None) -> _Spaces:
    spaces, marked = _Spaces(), False
    for step in _steps(part, "pretokenizers"):
        if step["type"] == "WhitespaceSplit" and not marked:
            spaces.collapse = True
        elif step["type"] == "Metaspace":
            _check_metaspace(step)
            spaces.dummy_prefix = (
                step.get("prepend_scheme", "always" if step.get("add_prefix_space") else "never") != "never"
            )
            marked = True
        else:
            raise _UnlikeError(f"its pre-tokenizer {step['type']} is not what SentencePiece does")
    if not marked:
        raise _UnlikeError("it does not mark spaces by ▁ as SentencePiece does (no Metaspace)")
    return spaces


def _check_metaspace(step: Mapping[str, Any]) -> None:
    if step["replacement"] != SPACE:
        raise _UnlikeError(f"it writes spaces as {step['replacement']!r}, not as ▁")


def _read_normalizer(part: Mapping[str, Any] | None, spaces: _Spaces) -> bytes:
    """The compiled rules of the original SentencePiece model; empty where there are none."""
    charsmap = b""
    for step in _steps(part, "normalizers"):
        if step["type"] == "Precompiled" and not charsmap:
            charsmap = base64.b64decode(step["precompiled_charsmap"] or "")
        elif step["type"] == "Replace" and step["pattern"] == {"Regex": " {2,}"} and step["content"] in (" ", SPACE):
            spaces.collapse = True  # SentencePiece then also drops white space at the ends
        elif step["type"] == "Replace" and (step["pattern"], step["content"]) == ({"Regex": "\\n"}, " "):
            pass  # a text is one line
        elif step["type"] != "Strip":
            raise _UnlikeError(f"its normalizer {step['type']} is not what SentencePiece does")
    return charsmap


# Pieces


def _bpe_scores(model: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The pieces by id, with minus the rank of their merges as the score."""
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise _UnlikeError("its BPE marks the parts of a word, which SentencePiece does not")
    if model.get("dropout"):
        raise _UnlikeError("its BPE drops merges at random")
    vocabulary = {str(token): int(i) for token, i in model["vocab"].items()}
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    ranks = _ranks(merges, vocabulary)
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[token] for token in tokens] != list(range(len(tokens))):
        raise _UnlikeError("its BPE leaves ids without a token")
    return [(token, -float(ranks.get(token, len(merges)))) for token in tokens]


def _ranks(merges: Sequence[tuple[str, ...]], vocabulary: Mapping[str, int]) -> dict[str, int]:
    """SentencePiece joins any two neighbours that make a piece; so must the merges, each piece's in one run."""
    ranks: dict[str, int] = {}
    splits: dict[str, set[tuple[str, ...]]] = {}
    previous = ""
    for merge in merges:
        piece = "".join(merge)
        if piece != previous and piece in ranks:
            raise _UnlikeError("its merges are not in the order of pieces, as SentencePiece's are")
        ranks.setdefault(piece, len(ranks))
        splits.setdefault(piece, set()).add(merge)
        previous = piece
    for piece, known in splits.items():
        possible = {(piece[:i], piece[i:]) for i in range(1, len(piece))}
        if {p for p in possible if p[0] in vocabulary and p[1] in vocabulary} - known:
            raise _UnlikeError(f"its BPE cannot make {piece!r} from every two parts, as SentencePiece can")
    return ranks


def _add_pieces(
    message: Any, scores: Sequence[tuple[str, float]], unk: str | None, added: Sequence[Mapping[str, Any]]
) -> None:
    kind = message.SentencePiece
    special = {token["content"]: bool(token.get("special")) for token in added}
    pieces = {piece: i for i, (piece, _) in enumerate(scores)}
    if len(pieces) != len(scores):
        raise _UnlikeError("it names a piece twice")
    for piece, score in scores:
        message.pieces.add(piece=piece, score=score, type=_piece_type(kind, piece, unk, special, message))
    for token in sorted(added, key=lambda token: int(token["id"])):
        i = int(token["id"])
        if pieces.get(token["content"], i) != i:
            raise _UnlikeError(f"it gives {token['content']!r} two ids")
        if i > len(message.pieces) + 2**16:
            raise _UnlikeError(f"its ids leave a gap before {i}")
        while len(message.pieces) < i:
            message.pieces.add(piece=UNUSED.format(len(message.pieces)), score=0.0, type=kind.CONTROL)
        if i == len(message.pieces):
            extra = _piece_type(kind, token["content"], unk, special, message)
            message.pieces.add(piece=token["content"], score=0.0, type=extra)
    if not any(piece.type == kind.UNKNOWN for piece in message.pieces):
        message.pieces.add(piece="<unk>" if unk is None else unk, score=0.0, type=kind.UNKNOWN)
    _name_special(message, unk or "<unk>", special)


def _piece_type(kind: Any, piece: str, unk: str | None, special: Mapping[str, bool], message: Any) -> int:
    if piece == unk:
        return int(kind.UNKNOWN)
    if piece in special:
        return int(kind.CONTROL if special[piece] else kind.USER_DEFINED)
    if message.trainer_spec.byte_fallback and len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return int(kind.BYTE)
    return int(kind.UNUSED if SPACE in piece[1:] else kind.NORMAL)  # words are cut before every ▁


def _name_special(message: Any, unk: str, special: Mapping[str, bool]) -> None:
    spec = message.trainer_spec
    spec.unk_piece = unk
    if special.get(unk):
        spec.unk_surface = ""  # special tokens are left out of the text
    places = {piece.piece: i for i, piece in enumerate(message.pieces)}
    for name in ("unk", "bos", "eos", "pad"):
        setattr(spec, f"{name}_id", places.get(getattr(spec, f"{name}_piece"), -1))


def _word_list(values: Mapping[str, Any]) -> TextSide:
    """WordLevel over white space: our kind `words`."""
    types = [step["type"] for step in _steps(values.get("pre_tokenizer"), "pretokenizers")]
    if values.get("normalizer") is not None or types != ["WhitespaceSplit"]:
        raise _UnlikeError("WordLevel with anything but WhitespaceSplit before it is not supported")
    vocabulary = {str(token): int(i) for token, i in values["model"]["vocab"].items()}
    size = max(vocabulary.values()) + 1
    if size > 2 * len(vocabulary) + 1000:
        raise _UnlikeError(f"its {len(vocabulary)} words have ids up to {size}")
    tokens = [UNUSED.format(i) for i in range(size)]
    for token, i in vocabulary.items():
        tokens[i] = token
    return token_list(tokens)
