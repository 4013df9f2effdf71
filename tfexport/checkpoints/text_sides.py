"""Tokenizer files that lie beside a checkpoint, and the special ids that they name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import sentencepiece

from tfexport.checkpoints.imported import Fact, ImportOptions
from tfexport.checkpoints.tokenizers.files import read_tokenizer
from tfexport_train.checkpoint import TextSide
from tfexport_train.errors import CheckpointError

# How toolkits write the special tokens in a plain list of tokens.
_WRITTEN = {
    "pad_id": ("<pad>", "<blank>", "<PAD>", "[PAD]"),
    "start_id": ("<s>", "<bos>", "<sos>", "<BOS>", "<SOS>", "[BOS]"),
    "eos_id": ("</s>", "<eos>", "<EOS>", "[EOS]"),
    "unk_id": ("<unk>", "<UNK>", "[UNK]"),
}
_PADDED_TO = 128
"""A vocabulary that is larger than its tokenizer by less, and a multiple of 8, was padded for speed."""


@dataclass(frozen=True)
class Sides:
    """Both tokenizers as far as they were given."""

    source: TextSide | None
    target: TextSide | None
    missing: tuple[Fact, ...]


def text_sides(options: ImportOptions, source_size: int, target_size: int) -> Sides:
    """From the files of the options, or decimal ids where the options want them. Raises CheckpointError."""
    if options.ids:
        return Sides(decimal_ids(source_size), decimal_ids(target_size), ())
    if options.source_tokenizer is None:
        fact = Fact("--source-tokenizer", "the file that makes ids of text; --ids takes ids as text")
        return Sides(None, None, (fact,))
    source = read_tokenizer(options.source_tokenizer)
    target = read_tokenizer(options.target_tokenizer) if options.target_tokenizer else source
    return Sides(source, target, ())


def decimal_ids(size: int) -> TextSide:
    """A vocabulary in which each id is written as its own number."""
    return TextSide("words", "\n".join(map(str, range(size))).encode())


def special_ids(side: TextSide) -> dict[str, int]:
    """Those that the tokenizer itself names."""
    if side.kind == "sentencepiece":
        model = sentencepiece.SentencePieceProcessor()
        model.LoadFromSerializedProto(side.model)
        named = {"pad_id": model.pad_id(), "start_id": model.bos_id(), "eos_id": model.eos_id()}
        return {name: i for name, i in {**named, "unk_id": model.unk_id()}.items() if i >= 0}
    tokens = {token: i for i, token in enumerate(side.model.decode("utf-8").split("\n"))}
    found = {name: [tokens[w] for w in written if w in tokens] for name, written in _WRITTEN.items()}
    return {name: ids[0] for name, ids in found.items() if len(ids) == 1}


def check_size(side: TextSide, which: str, vocab_size: int, path: Path) -> str | None:
    """A remark, if there is one. Raises CheckpointError, with both sizes, for a tokenizer of another vocabulary."""
    size = side.tokenizer(0).size
    if size == vocab_size:
        return None
    if size < vocab_size and vocab_size % 8 == 0 and vocab_size - size < _PADDED_TO:
        return f"{which} vocabulary of {vocab_size} is the tokenizer's {size}, padded; the ids above are never used"
    raise CheckpointError(
        f"{path}: the {which} vocabulary of the weights has {vocab_size} entries, its tokenizer {size}; "
        f"give the tokenizer that the model was trained with"
    )


def with_ends(side: TextSide, add_bos: bool, add_eos: bool) -> TextSide:
    return replace(side, add_bos=add_bos, add_eos=add_eos)
