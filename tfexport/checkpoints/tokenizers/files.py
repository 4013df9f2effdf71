"""A tokenizer file of any known kind, in the ids of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfexport.checkpoints.tokenizers.sentencepiece_model import parse_model, sentencepiece_with_ids
from tfexport.checkpoints.tokenizers.tokenizer_json import read_tokenizer_json
from tfexport.checkpoints.tokenizers.tokens import (
    MAX_BYTES,
    made_of_characters,
    read_counted_tokens,
    read_fairseq_dict,
    token_list,
)
from tfexport_train.checkpoint import TextSide
from tfexport_train.errors import CheckpointError

Vocabulary = Mapping[str, int] | Sequence[str]
KNOWN = ".model or .spm (SentencePiece), tokenizer.json, dict*.txt (fairseq), any other .txt or .vocab (a token a line)"


def read_tokenizer(
    path: Path, vocabulary: Vocabulary | None = None, size: int | None = None, unk: str = "<unk>"
) -> TextSide:
    """How text becomes ids, by what the file is called.

    `vocabulary` are the tokens of the model where its file has them: the pieces of a SentencePiece model then get its
    ids; `size` is that of the embedding. Raises CheckpointError.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such tokenizer file")
    if path.suffix in (".model", ".spm"):
        return TextSide("sentencepiece", _sentencepiece(path, vocabulary, size, unk))
    if path.suffix == ".json":
        side = read_tokenizer_json(path)
        if vocabulary is not None and side.kind == "sentencepiece":
            # Its ids are those of its own model; the file of the weights may have others.
            total = size if size is not None else len(vocabulary)
            side = replace(side, model=sentencepiece_with_ids(side.model, vocabulary, total, unk))
        return side
    if path.suffix in (".txt", ".vocab"):
        tokens = read_fairseq_dict(path) if path.name.startswith("dict") else read_counted_tokens(path)
        return token_list(tokens, "characters" if made_of_characters(tokens) else "words")
    raise CheckpointError(f"{path}: not a tokenizer of a known kind; known: {KNOWN}")


def _sentencepiece(path: Path, vocabulary: Vocabulary | None, size: int | None, unk: str) -> bytes:
    if path.stat().st_size > MAX_BYTES:
        raise CheckpointError(f"{path}: larger than {MAX_BYTES // 2**20} MiB, not a SentencePiece model")
    model = path.read_bytes()
    try:
        if vocabulary is None:
            parse_model(model)
            return model
        return sentencepiece_with_ids(model, vocabulary, len(vocabulary) if size is None else size, unk)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
