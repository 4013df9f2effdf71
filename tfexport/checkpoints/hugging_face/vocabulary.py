"""The tokens of a Hugging Face folder with the model's ids, which are rarely those of its SentencePiece model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfexport.checkpoints.hugging_face.folder import Folder
from tfexport.checkpoints.tokenizers.sentencepiece_model import piece_names
from tfexport_train.errors import CheckpointError

Tokens = dict[str, int]

_PIECES = ("sentencepiece.bpe.model", "spiece.model", "source.spm")
# M2M100's languages in the order of their ids, behind those of vocab.json. Its files do not always name them.
_M2M100_CODES = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht "
    "hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps "
    "pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
)
_WMT21_CODES = "en ha is ja cs ru zh de"
_PEGASUS_OFFSET = 103  # ids that Pegasus puts before those of its pieces


def piece_file(folder: Folder, name: str | None = None) -> Path | None:
    """The SentencePiece model, under the name that its family gives it, or else `name`."""
    names = _PIECES if name is None else (name, *_PIECES)
    return next((folder.path / known for known in names if folder.has(known)), None)


def vocabulary(folder: Folder, model_type: str, target: bool = False) -> Tokens | None:
    """Token -> id. None where the folder has no list of tokens and ids are those of the SentencePiece model itself.

    target: of the decoder, where a Marian model has two vocabularies. Raises CheckpointError.
    """
    if target and folder.has("target_vocab.json"):
        return _vocab_json(folder, "target_vocab.json")
    if folder.has("tokenizer.json"):
        return _of_tokenizer_json(folder)
    if model_type == "m2m_100" and folder.has("vocab.json"):
        return _with_m2m100_languages(folder, _vocab_json(folder, "vocab.json"))
    if model_type == "marian" and folder.has("vocab.json"):
        return _vocab_json(folder, "vocab.json")
    pieces = piece_file(folder)
    compose = _COMPOSED.get(model_type)
    if pieces is None or compose is None:
        return None
    return _with_added(folder, compose(piece_names(pieces.read_bytes())))


def _vocab_json(folder: Folder, name: str) -> Tokens:
    return _tokens(folder.settings(name).values, folder.path / name)


def _of_tokenizer_json(folder: Folder) -> Tokens:
    file = folder.settings("tokenizer.json")
    try:
        listed = file.values["model"]["vocab"]
        found = dict(listed) if isinstance(listed, Mapping) else {str(piece): i for i, (piece, _) in enumerate(listed)}
        found |= {token["content"]: token["id"] for token in file.values.get("added_tokens") or ()}
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{file.path}: not a tokenizer.json: {type(error).__name__}: {error}") from error
    return _tokens(found, file.path)


def _with_added(folder: Folder, tokens: Tokens) -> Tokens:
    """With the tokens that the tokenizer's own files add: with their ids, or else behind the others, in order."""
    added = folder.settings("tokenizer_config.json").values.get("added_tokens_decoder")
    if isinstance(added, dict) and added:
        by_id = {str(token.get("content")): int(i) for i, token in added.items() if isinstance(token, dict)}
        return {**tokens, **by_id}
    if folder.has("added_tokens.json"):
        return {**tokens, **_vocab_json(folder, "added_tokens.json")}
    special = folder.settings("special_tokens_map.json").values
    named = [*_written(special.get("additional_special_tokens")), *_written(special.get("mask_token"))]
    result = dict(tokens)
    for token in named:
        result.setdefault(token, len(result))
    return result


def _with_m2m100_languages(folder: Folder, tokens: Tokens) -> Tokens:
    wmt21 = folder.settings("tokenizer_config.json").text("language_codes") == "wmt21"
    codes = (_WMT21_CODES if wmt21 else _M2M100_CODES).split()
    return {**{f"__{code}__": len(tokens) + i for i, code in enumerate(codes)}, **_with_added(folder, tokens)}


def _written(value: Any) -> list[str]:
    """One token or a list of them, each as text or as an object with its content."""
    values = value if isinstance(value, list) else [value]
    return [v["content"] if isinstance(v, dict) else str(v) for v in values if v is not None]


def _fairseq(pieces: Sequence[str]) -> Tokens:
    """mBART's and NLLB's: fairseq's four special tokens in the place of the model's three."""
    return {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces[3:]])}


def _pegasus(pieces: Sequence[str]) -> Tokens:
    """Two masks and a hundred unknown tokens stand before the pieces."""
    first = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, _PEGASUS_OFFSET))]
    return {token: i for i, token in enumerate([*first, *pieces[2:]])}


def _plain(pieces: Sequence[str]) -> Tokens:
    return {token: i for i, token in enumerate(pieces)}


_COMPOSED: Mapping[str, Callable[[Sequence[str]], Tokens]] = {
    "mbart": _fairseq,
    "m2m_100": _fairseq,
    "pegasus": _pegasus,
    "t5": _plain,
    "mt5": _plain,
}


def _tokens(values: Mapping[Any, Any], path: Path) -> Tokens:
    wrong = next((token for token, i in values.items() if not isinstance(token, str) or type(i) is not int), None)
    if wrong is not None or not values:
        raise CheckpointError(f"{path}: expected tokens with their ids" + (f", found {wrong!r}" if wrong else ""))
    return dict(values)
