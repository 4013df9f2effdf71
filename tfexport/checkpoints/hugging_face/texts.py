"""The tokenizers of a Hugging Face folder as ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tfexport.checkpoints.hugging_face.folder import Folder
from tfexport.checkpoints.hugging_face.languages import Languages, languages
from tfexport.checkpoints.hugging_face.vocabulary import Tokens, piece_file, vocabulary
from tfexport.checkpoints.imported import ImportOptions
from tfexport.checkpoints.tokenizers.files import read_tokenizer
from tfexport.checkpoints.tokenizers.tokenizer_json import WAY_OUT
from tfexport.checkpoints.tokenizers.tokens import number_list
from tfexport_train.checkpoint import TextSide
from tfexport_train.errors import CheckpointError


@dataclass(frozen=True)
class Texts:
    source: TextSide
    target: TextSide
    unk_id: int | None  # None: the folder does not say
    start_id: int | None  # where it is a language
    notes: tuple[str, ...] = ()


def texts(folder: Folder, options: ImportOptions, source_size: int, target_size: int) -> Texts:
    """Raises CheckpointError for tokenizers that the runtimes do not have, and languages that are not given."""
    model_type = folder.config.text("model_type")
    tokens = vocabulary(folder, model_type)
    around = languages(folder, options, tokens)
    unk = _unknown(folder)
    if options.ids:
        source, target = number_list(source_size), number_list(target_size)
    else:
        given = options.source_tokenizer, options.target_tokenizer or options.source_tokenizer
        target_tokens = vocabulary(folder, model_type, target=True)
        source = _side(folder, given[0], "source.spm", tokens, source_size, unk)
        target = _side(folder, given[1], "target.spm", target_tokens, target_size, unk)
    return Texts(
        replace(source, add_eos=True, prefix_ids=around.source_prefix, suffix_ids=around.source_suffix),
        replace(target, prefix_ids=around.target_prefix),
        (tokens or {}).get(unk),
        around.start,
        tuple(_said(around)),
    )


def _unknown(folder: Folder) -> str:
    """How the vocabulary writes the unknown token; some files give an object with its properties."""
    value = folder.settings("tokenizer_config.json").values.get("unk_token")
    written = value.get("content") if isinstance(value, dict) else value
    return written if isinstance(written, str) else "<unk>"


def _side(folder: Folder, given: Path | None, name: str, tokens: Tokens | None, size: int, unk: str) -> TextSide:
    path = given or piece_file(folder, name)
    if path is not None:
        side = read_tokenizer(path, _within(tokens, size), size if tokens else None, unk)
        count = side.tokenizer(0).size
        if tokens is None and count > size:
            raise CheckpointError(
                f"{path}: has {count} tokens, the model's vocabulary {size}; give the tokenizer that "
                "the model was trained with"
            )
        return side
    if folder.has("tokenizer.json"):
        return read_tokenizer(folder.path / "tokenizer.json")
    kind = "byte-level BPE (vocab.json and merges.txt)" if folder.has("merges.txt") else "no tokenizer that is known"
    raise CheckpointError(f"{folder.path}: {kind}; {WAY_OUT}")


def _within(tokens: Mapping[str, int] | None, size: int) -> dict[str, int] | None:
    """Without tokens that the model has no embedding for."""
    return None if tokens is None else {token: i for token, i in tokens.items() if i < size}


def _said(around: Languages) -> list[str]:
    said = {
        "before every source text": around.source_prefix,
        "behind every source text": around.source_suffix,
        "first in every translation": around.target_prefix,
    }
    return [f"ids {', '.join(map(str, ids))} stand {where}" for where, ids in said.items() if ids]
