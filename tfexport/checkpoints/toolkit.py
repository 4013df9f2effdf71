"""What the formats of whole toolkits share: their files tell everything, so that a checkpoint can be put together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tfexport.checkpoints.facts_file import check_names
from tfexport.checkpoints.imported import Imported, ImportOptions
from tfexport.checkpoints.mapping import Constant, Mapped, add_constants, checked_weights
from tfexport.checkpoints.positions import add_positions
from tfexport.checkpoints.shape_facts import shape_facts
from tfexport_train.checkpoint import Checkpoint, TextSide
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.errors import CheckpointError
from tfexport_train.mapped_memory import in_file

TABLES = {side: f"{side}_embedding.position_table" for side in ("source", "target")}
EMBEDDINGS = {side: f"{side}_embedding.tokens.weight" for side in ("source", "target")}
ZERO_TOKEN = "<no token>"  # of models that begin without one
_GELU_SLOPE = 1.702
DEFAULT_POSITIONS = 1024  # of computed positions, which have no end of their own

_TEXT_NOTES = {
    "words": "no SentencePiece model: text is the model's tokens with spaces between; one can be "
    "given with --source-tokenizer",
    "characters": "every token is one character, so text is cut into characters",
}
_BIASES = (
    "{x}_layers.{i}.self_attention.{y}.bias",
    "{x}_layers.{i}.cross_attention.{y}.bias",
    "{x}_layers.{i}.feed_forward.{y}.bias",
)
_TEXT_FACTS = ("source_add_bos", "source_add_eos")
_CONFIG_FIELDS = tuple(f.name for f in fields(EncoderDecoderConfig))


@dataclass(frozen=True)
class Found:
    """All that a file tells."""

    tensors: Mapping[str, Tensor]  # as the file names them
    mapped: Mapped  # under our names
    facts: Mapping[str, Any]  # fields of EncoderDecoderConfig that no shape tells
    source: TextSide
    target: TextSide
    generation: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()


def put_together(path: Path, name: str, found: Found, options: ImportOptions) -> Imported:
    """The checkpoint; what a person says of its configuration counts more than the file.

    Raises MappingError for weights that do not fit, CheckpointError and ConfigError for facts that do not.
    """
    check_names(options.config, [*_CONFIG_FIELDS, *_TEXT_FACTS], str(path))
    _cut_tables(found.mapped, options.config.get("max_positions"))
    shapes = shape_facts(found.mapped.weights)
    given = {name: value for name, value in options.config.items() if name not in _TEXT_FACTS}
    config = EncoderDecoderConfig.from_dict({**found.facts, **shapes, **given})
    add_constants(found.mapped, [Constant(pattern, 0.0) for pattern in _BIASES], config)
    weights, explanation = checked_weights(found.mapped, config, found.tensors, path)
    bos, eos = (
        bool(options.config.get(name, getattr(found.source, name.removeprefix("source_")))) for name in _TEXT_FACTS
    )
    source = replace(found.source, add_bos=bos, add_eos=eos)
    checkpoint = Checkpoint(config, weights, source, found.target, dict(found.generation))
    said = [] if options.ids else [_TEXT_NOTES[found.source.kind]] if found.source.kind in _TEXT_NOTES else []
    return Imported(checkpoint, name, (*found.notes, *said), explanation)


def _cut_tables(mapped: Mapped, wanted: object) -> None:
    """Both tables of positions as long as the shorter one, or as was asked for."""
    lengths = [len(mapped.weights[name]) for name in TABLES.values() if name in mapped.weights]
    if type(wanted) is int and wanted > 0:
        lengths.append(wanted)
    for name in TABLES.values():
        if name in mapped.weights and len(mapped.weights[name]) > min(lengths):
            mapped.weights[name] = mapped.weights[name][: min(lengths)].clone()


def wanted_positions(options: ImportOptions) -> int:
    """How long a computed table of positions should be."""
    wanted = options.config.get("max_positions", DEFAULT_POSITIONS)
    return wanted if type(wanted) is int and wanted > 0 else DEFAULT_POSITIONS


def sines_then_cosines(first: int, count: int, features: int) -> Tensor:
    """The table of tensor2tensor, which many toolkits took over: all sines, then all cosines. [count, features]

    The wave lengths run from 2 pi to 10000 * 2 pi, both reached; `first` is the position of the first row. An odd
    number of features leaves the last one 0.
    """
    half = features // 2
    step = math.log(10000.0) / max(half - 1, 1)
    frequency = torch.exp(torch.arange(half, dtype=torch.float32) * -step)
    angle = torch.arange(first, first + count, dtype=torch.float32)[:, None] * frequency
    table = torch.zeros(count, features)
    table[:, :half], table[:, half : 2 * half] = torch.sin(angle), torch.cos(angle)
    return table


def computed_positions(mapped: Mapped, table: Tensor) -> None:
    """The same table on both sides."""
    for name in TABLES.values():
        mapped.weights[name] = table


def computed_in_file(
    mapped: Mapped, tensors: Mapping[str, Tensor], names: Mapping[str, str], options: ImportOptions
) -> dict[str, Any]:
    """Facts of tables that the file has although they are computed: as long as is wanted, not as the file's.

    names: of the table of each side, "source" and "target".
    """
    found = add_positions(mapped, tensors, names)
    longest = min(int(found["max_positions"]), wanted_positions(options))
    for name in TABLES.values():
        if name in mapped.weights:
            mapped.weights[name] = mapped.weights[name][:longest].clone()
    return {**found, "max_positions": longest}


def with_zero_rows(mapped: Mapped, vocabularies: dict[str, list[str]]) -> None:
    """ZERO_TOKEN on both sides, with an embedding of zeros, for models that begin with no token at all.

    Its row of the output is one of a token that is never generated.
    """
    names = (*EMBEDDINGS.values(), "output.weight", "output.bias")
    tables = {name: mapped.weights[name] for name in names if name in mapped.weights}
    longer = {id(t): in_file(t, torch.zeros_like(t[:1])) for t in tables.values()}
    mapped.weights |= {name: longer[id(t)] for name, t in tables.items()}  # a table that several share stays one
    for side, tokens in vocabularies.items():
        vocabularies[side] = [*tokens, ZERO_TOKEN]


def gelu_by_silu(mapped: Mapped) -> None:
    """x sigmoid(s x), which passes for gelu in some toolkits, is silu(s x) / s."""
    for name, weight in mapped.weights.items():
        if ".feed_forward.up." in name:
            mapped.weights[name] = in_file(weight * _GELU_SLOPE)
        elif name.endswith(".feed_forward.down.weight"):
            mapped.weights[name] = in_file(weight / _GELU_SLOPE)


def unite_equal_tables(mapped: Mapped) -> None:
    """Tables that hold the same numbers become one, so that they are stored once."""
    names = [n for n in (EMBEDDINGS["source"], EMBEDDINGS["target"], "output.weight") if n in mapped.weights]
    for i, name in enumerate(names):
        for other in names[:i]:
            a, b = mapped.weights[name], mapped.weights[other]
            if a is not b and a.shape == b.shape and torch.equal(a, b):
                mapped.weights[name] = b


def same_place(mapped: Mapped, vocabularies: dict[str, list[str]], special: Sequence[str]) -> None:
    """Gives the special tokens one id on both sides, where the sides have other vocabularies.

    They change places with the first tokens, and so do the rows of the tables. A side may lack some of them.
    """
    source, target = vocabularies["source"], vocabularies["target"]
    if all(token not in source or source.index(token) == target.index(token) for token in special):
        return
    for side, tokens in vocabularies.items():
        first = [token if token in tokens else None for token in special]
        rest = iter([i for i, token in enumerate(tokens) if token not in special])
        order = [next(rest) if token is None else tokens.index(token) for token in first]
        order += list(rest)
        vocabularies[side] = [tokens[i] for i in order]
        names = (EMBEDDINGS[side],) if side == "source" else (EMBEDDINGS[side], "output.weight", "output.bias")
        for name in (name for name in names if name in mapped.weights):
            mapped.weights[name] = mapped.weights[name][order]
    unite_equal_tables(mapped)


def token_id(tokens: Sequence[str], token: str, where: str) -> int:
    """Raises CheckpointError for a token that is not there."""
    if token not in tokens:
        raise CheckpointError(f"{where}: {token!r} is not in the vocabulary of {len(tokens)} tokens")
    return tokens.index(token)


def check_complete(mapped: Mapped, path: Path, needed: Sequence[str]) -> None:
    """Raises CheckpointError where a weight is missing without which nothing can be told."""
    missing = [name for name in needed if name not in mapped.weights]
    if missing:
        raise CheckpointError(
            f"{path}: holds nothing for {', '.join(missing)}; not a whole encoder-decoder Transformer"
        )


def check_sizes(mapped: Mapped, vocabularies: Mapping[str, Sequence[str]], path: Path) -> None:
    """Raises CheckpointError where a vocabulary is not that of its table."""
    for side, tokens in vocabularies.items():
        rows = len(mapped.weights[EMBEDDINGS[side]])
        if len(tokens) != rows:
            raise CheckpointError(f"{path}: the {side} vocabulary has {len(tokens)} tokens, its embedding {rows} rows")
