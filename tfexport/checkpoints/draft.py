"""From weights under our names to a checkpoint: gathers the facts, or says at once everything that is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from torch import Tensor

from tfexport.checkpoints.facts_file import check_names
from tfexport.checkpoints.imported import (
    Explanation,
    Fact,
    Imported,
    ImportOptions,
    LeftOver,
    MappingError,
    MissingFacts,
)
from tfexport.checkpoints.mapping import Constant, Mapped, add_constants, checked_weights
from tfexport.checkpoints.reference import Verdict, compare_with_reference
from tfexport.checkpoints.shape_facts import BASICS, TARGET_TABLE, shape_facts
from tfexport.checkpoints.text_sides import Sides, check_size, special_ids, text_sides, with_ends
from tfexport.checkpoints.weight_files import shapes_of
from tfexport_train.checkpoint import Checkpoint
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.errors import CheckpointError

_SPECIAL = ("pad_id", "start_id", "eos_id", "unk_id")
_TEXT_FACTS = ("source_add_bos", "source_add_eos")
_CONFIG_FIELDS = tuple(f.name for f in fields(EncoderDecoderConfig))
MEANINGS: Mapping[str, str] = {
    "num_heads": "heads of the attention",
    "norm_position": "pre or post",
    "activation": "relu, gelu, gelu_tanh or silu; with a gate swiglu, geglu, geglu_tanh or reglu",
    "positions": "sinusoidal or none; no table is in the file",
    "scale_embedding": "true where token embeddings are multiplied by sqrt(d_model)",
    "share_embeddings": "true where one table serves source and target",
    "tie_output": "true where the target's table is the projection",
    "norm": "layer_norm, as PyTorch has it, unbiased_layer_norm, with n - 1, or rms_norm",
    "pad_id": "id of the padding",
    "start_id": "id that the decoder reads first",
    "eos_id": "id of the end",
    "unk_id": "id of unknown words",
    "source_add_bos": "true where the start token stands before every source text",
    "source_add_eos": "true where the end token stands behind every source text",
}


@dataclass(frozen=True)
class Draft:
    """A state_dict under our names, before all facts are known."""

    path: Path
    format: str
    tensors: Mapping[str, Tensor]  # as the file names them
    mapped: Mapped
    found: Mapping[str, Any] = field(default_factory=dict)  # in the file, beside what shapes tell
    known: Mapping[str, Any] = field(default_factory=dict)  # as the published class has it; a person may say otherwise
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # what a comparison may decide, likeliest first
    constants: Sequence[Constant] = ()
    own_facts: Sequence[str] = ()  # names besides those of the configuration that the form understands
    missing: Sequence[Fact] = ()  # what the form itself could not find
    notes: Sequence[str] = ()


def complete(draft: Draft, options: ImportOptions) -> Imported:
    """Raises MissingFacts, MappingError or CheckpointError."""
    check_names(options.config, [*_CONFIG_FIELDS, *_TEXT_FACTS, *draft.own_facts], f"{draft.path}: facts")
    if options.source_language or options.target_language:
        raise CheckpointError(f"{draft.path}: {draft.format} has no languages to choose from")
    given = {name: value for name, value in options.config.items() if name not in draft.own_facts}
    shapes = shape_facts(draft.mapped.weights, [constant.ours for constant in draft.constants])
    _check_contradictions(given, shapes, draft)
    _check_basics(draft)
    sides = text_sides(options, shapes["source_vocab_size"], shapes["target_vocab_size"])
    found = {**draft.found, **_named_ids(sides, given, draft.path), **shapes, **given}
    facts = {**draft.known, **found}
    choices = _choices(draft, found) if options.reference else {}
    _check_missing(draft, facts, choices, sides)
    assert sides.source is not None
    assert sides.target is not None
    decided = _decide(draft, list(_candidates(draft, facts, choices)), options.reference)
    config = decided.config
    sizes = [
        check_size(sides.source, "source", config.source_vocab_size, draft.path),
        check_size(sides.target, "target", config.target_vocab_size, draft.path),
    ]
    source = with_ends(sides.source, facts["source_add_bos"], facts["source_add_eos"])
    notes = [*draft.notes, *_said(draft, found, choices, decided), *filter(None, sizes)]
    checkpoint = Checkpoint(config, decided.weights, source, sides.target)
    return Imported(checkpoint, draft.format, tuple(notes), decided.explanation)


@dataclass(frozen=True)
class _Decided:
    config: EncoderDecoderConfig
    weights: dict[str, Tensor]
    explanation: Explanation
    verdict: Verdict | None = None


def _decide(draft: Draft, candidates: Sequence[EncoderDecoderConfig], reference: str | None) -> _Decided:
    """The only candidate, or the one that computes what the reference computes."""
    if reference is None:
        return _Decided(candidates[0], *_weights(draft, candidates[0]))
    # Of all that is open, only the norm changes which weights there are.
    by_norm = {norm: _weights(draft, config) for norm, config in {c.norm: c for c in candidates}.items()}
    verdict = compare_with_reference(reference, draft.tensors, candidates, lambda c: by_norm[c.norm][0], draft.path)
    return _Decided(verdict.config, *by_norm[verdict.config.norm], verdict)


def _check_contradictions(given: Mapping[str, Any], seen: Mapping[str, Any], draft: Draft) -> None:
    """Also cuts tables of positions to the length that was asked for, or to that of the shorter one."""
    for name, value in given.items():
        shorter = name == "max_positions" and name in seen and type(value) is int and value <= seen[name]
        if name in seen and value != seen[name] and not shorter:
            raise CheckpointError(f"{draft.path}: {name}={value} was given, but the weights say {seen[name]}")
    if "max_positions" in seen:
        length = given.get("max_positions", seen["max_positions"])
        for name in [name for name in draft.mapped.weights if name.endswith("position_table")]:
            if len(draft.mapped.weights[name]) > length:
                draft.mapped.weights[name] = draft.mapped.weights[name][:length].clone()


def _check_basics(draft: Draft) -> None:
    """Without embeddings and a first layer of each stack, sizes cannot be told."""
    weights = draft.mapped.weights
    # A table of the target may be one of the others, but not while something is left that could be it.
    needless = () if draft.mapped.unused else (TARGET_TABLE,)
    absent = [name for name in BASICS if name not in weights and name not in needless]
    if absent and not draft.missing:
        raise MappingError(draft.path, replace(_so_far(draft), missing=tuple(LeftOver(name, ()) for name in absent)))
    if absent:
        shapes = {name: shape for name, shape in shapes_of(draft.tensors).items() if name in draft.mapped.unused}
        raise MissingFacts(draft.path, draft.format, draft.missing, shape_facts(weights), shapes, _so_far(draft))


def _so_far(draft: Draft) -> Explanation:
    """Before the configuration is known, and with it what is missing."""
    unused = tuple(LeftOver(name, tuple(draft.tensors[name].shape)) for name in draft.mapped.unused)
    return Explanation(tuple(draft.mapped.matches), (), unused, tuple(draft.mapped.wrong))


def _named_ids(sides: Sides, given: Mapping[str, Any], path: Path) -> dict[str, int]:
    """Special ids by the tokenizers. Raises CheckpointError where the two differ and nobody decided."""
    source, target = (special_ids(side) if side else {} for side in (sides.source, sides.target))
    unlike = [n for n in _SPECIAL if n not in given and n in source and n in target and source[n] != target[n]]
    if unlike:
        name = unlike[0]
        raise CheckpointError(
            f"{path}: the tokenizers disagree: {name} is {source[name]} in the source's and {target[name]} in the "
            f"target's; one model has one, say which: --set {name}=..."
        )
    return {**source, **target}


def _choices(draft: Draft, found: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """What neither the file nor a person tells, and what it may be."""
    width = draft.mapped.weights["encoder_layers.0.self_attention.q_proj.weight"].shape[0]
    heads = [h for h in range(1, width) if width % h == 0]
    heads.sort(key=lambda h: abs(width // h - 64))
    return {name: values for name, values in {"num_heads": heads, **draft.choices}.items() if name not in found}


def _check_missing(draft: Draft, facts: Mapping[str, Any], choices: Mapping[str, Any], sides: Sides) -> None:
    wanted = {name: meaning for name, meaning in MEANINGS.items() if name not in facts and name not in choices}
    missing = [*draft.missing, *(Fact(*item) for item in wanted.items()), *sides.missing]
    if missing:
        found = {name: facts[name] for name in _CONFIG_FIELDS if name in facts}
        raise MissingFacts(draft.path, draft.format, missing, found, shapes_of(draft.tensors), _so_far(draft))


def _candidates(
    draft: Draft, facts: Mapping[str, Any], choices: Mapping[str, Sequence[Any]]
) -> Iterator[EncoderDecoderConfig]:
    """One configuration for each combination of what is open."""
    fixed = {name: value for name, value in facts.items() if name in _CONFIG_FIELDS}
    width = draft.mapped.weights["encoder_layers.0.self_attention.q_proj.weight"].shape[0]
    for values in product(*choices.values()):
        chosen = {**fixed, **dict(zip(choices, values, strict=True))}
        heads = chosen["num_heads"]
        if isinstance(heads, int) and heads > 0 and width % heads == 0 and width != chosen["d_model"]:
            chosen = {"head_dim": width // heads, **chosen}
        yield EncoderDecoderConfig.from_dict(chosen)


def _weights(draft: Draft, config: EncoderDecoderConfig) -> tuple[dict[str, Tensor], Explanation]:
    mapped = replace(draft.mapped, weights=dict(draft.mapped.weights), matches=list(draft.mapped.matches))
    add_constants(mapped, draft.constants, config)
    return checked_weights(mapped, config, draft.tensors, draft.path)


def _said(
    draft: Draft,
    found: Mapping[str, Any],
    choices: Mapping[str, Any],
    decided: _Decided,
) -> Iterator[str]:
    """Everything that was neither given nor found in the file."""
    config = decided.config
    if decided.verdict is not None:
        words = [f"{name} {getattr(config, name)}" for name in choices]
        yield f"logits differ from {decided.verdict.name} by {decided.verdict.difference:.2g} at most" + (
            f"; the comparison decided: {', '.join(words)}" if words else ""
        )
    taken = [f"{name} {value}" for name, value in draft.known.items() if name not in found and name not in choices]
    if taken:
        yield f"as the published class has it: {', '.join(taken)}"
    defaults = [name for name in ("norm_eps", "max_positions") if name not in draft.known and name not in found]
    if defaults:
        yield f"not in the file, so by default: {', '.join(f'{n} {getattr(config, n)}' for n in defaults)}"
