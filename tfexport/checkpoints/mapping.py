"""From the weight names of a foreign file to ours, by rules.

A pattern is a weight name with placeholders: `{i}` (any letter from i to n) stands for a number, such as that of a
layer, `{word}` for any part between two dots and `*` for anything. A name of ours may count from elsewhere: `{i-1}`.

    Rule("enc.{i}.attn.qkv.{x}", tuple(f"encoder_layers.{{i}}.self_attention.{p}_proj.{{x}}" for p in "qkv"))
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from tfexport.checkpoints.expected import expected_shapes
from tfexport.checkpoints.imported import Explanation, LeftOver, MappingError, Match
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.errors import CheckpointError
from tfexport_train.mapped_memory import in_file, let_go, mapped_spans

_PLACEHOLDER = re.compile(r"\{(\w+)([+-]\d+)?\}")


@dataclass(frozen=True)
class Rule:
    """Where weights of theirs go. The steps are done in the order of the fields."""

    theirs: str | tuple[str, ...]  # several patterns: concatenated along `axis`
    ours: str | tuple[str, ...]  # several: split along `axis`
    squeeze: bool = False  # [1, L, d] or [L, 1, d] becomes [L, d]
    rows: tuple[int, int | None] | None = None  # keep these rows only: (2, None) cuts the first two
    transpose: bool = False  # [in, out] becomes [out, in]
    axis: int = 0
    sizes: tuple[int, ...] = ()  # of the parts; empty: equal ones
    scale: float = 1.0
    change: Callable[[Tensor], Tensor] | None = None  # anything else, on each result in float32
    changed: str = ""  # what `change` does, for people


@dataclass(frozen=True)
class Constant:
    """A weight of ours that their form does not have, such as a bias of zeros."""

    ours: str
    value: float


@dataclass
class Mapped:
    """Weights by our names, float32, and what is to be said about it."""

    weights: dict[str, Tensor] = field(default_factory=dict)
    matches: list[Match] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)  # theirs that no rule took
    wrong: list[str] = field(default_factory=list)


def map_weights(tensors: Mapping[str, Tensor], rules: Iterable[Rule], drop: Iterable[str] = ()) -> Mapped:
    """Applies to each weight the first rule that fits. What cannot be done is noted in `wrong`, nothing is raised.

    A weight that needs no change stays as it is, mapped from its file if it was.
    """
    result = Mapped(unused=list(tensors))
    for rule in rules:
        for bindings in _occurrences(_tuple(rule.theirs), result.unused):
            _apply(rule, bindings, tensors, result)
    for pattern in drop:
        for name in [name for name in result.unused if matches(pattern, name)]:
            result.unused.remove(name)
            result.matches.append(Match((name,), (), tuple(tensors[name].shape), "dropped"))
    return result


def add_constants(mapped: Mapped, constants: Iterable[Constant], config: EncoderDecoderConfig) -> None:
    """Fills weights of the configuration that are not there yet."""
    shapes = expected_shapes(config)
    for constant in constants:
        for name in [n for n in shapes if n not in mapped.weights and matches(constant.ours, n)]:
            mapped.weights[name] = torch.full(shapes[name], float(constant.value))
            mapped.matches.append(Match((), (name,), shapes[name], f"constant {constant.value:g}"))


def checked_weights(
    mapped: Mapped, config: EncoderDecoderConfig, tensors: Mapping[str, Tensor], path: Path
) -> tuple[dict[str, Tensor], Explanation]:
    """All weights of the configuration, tied ones filled in. Raises MappingError for every difference at once."""
    weights = with_ties(mapped.weights, config, path)
    shapes = expected_shapes(config)
    unused_shapes = {name: tuple(tensors[name].shape) for name in mapped.unused}
    missing = {name: shape for name, shape in shapes.items() if name not in weights}
    extra = {name: tuple(weights[name].shape) for name in weights.keys() - shapes.keys()}
    wrong = [
        f"{name} is {list(weights[name].shape)}, expected {list(shape)}"
        for name, shape in shapes.items()
        if name in weights and tuple(weights[name].shape) != shape
    ]
    extra_words = [f"{name} {list(shape)} has no place in this configuration" for name, shape in sorted(extra.items())]
    explanation = Explanation(
        tuple(mapped.matches),
        tuple(LeftOver(name, shape, _nearest(name, unused_shapes)) for name, shape in missing.items()),
        tuple(LeftOver(name, shape, _nearest(name, missing or shapes)) for name, shape in unused_shapes.items()),
        (*mapped.wrong, *wrong, *extra_words),
    )
    if not explanation.complete:
        raise MappingError(path, explanation)
    return weights, explanation


def with_ties(weights: Mapping[str, Tensor], config: EncoderDecoderConfig, path: Path) -> dict[str, Tensor]:
    """Tied weights under each of their names. Raises CheckpointError where two that should be one differ."""
    source, target, output = "source_embedding.tokens.weight", "target_embedding.tokens.weight", "output.weight"
    tied = [(source, target, "share_embeddings")] if config.share_embeddings else []
    tied += [(target, output, "tie_output")] if config.tie_output else []
    result = dict(weights)
    for first, second, flag in [*tied, *reversed(tied)]:
        for name, other in ((first, second), (second, first)):
            if name in result and other not in result:
                result[other] = result[name]
        if first in result and second in result and not same(result[first], result[second]):
            raise CheckpointError(
                f"{path}: {flag} is true, but the weights differ: {first} {list(result[first].shape)} and "
                f"{second} {list(result[second].shape)} are two tables; set {flag}=false"
            )
        if first in result and second in result:
            result[second] = result[first]
    return result


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold the same numbers."""
    return a.shape == b.shape and (a.data_ptr() == b.data_ptr() or torch.equal(a, b))


def matches(pattern: str, name: str) -> bool:
    return _expression(pattern).fullmatch(name) is not None


def count_layers(names: Iterable[str], pattern: str) -> int:
    """One more than the largest number at `{i}`; 0 where nothing matches."""
    expression = _expression(pattern)
    found = [match.groupdict()["i"] for name in names if (match := expression.fullmatch(name))]
    return max(map(int, found), default=-1) + 1


def _occurrences(patterns: Sequence[str], names: Iterable[str]) -> list[dict[str, str]]:
    """The values of the placeholders, once for each name that the first pattern matches."""
    expression = _expression(patterns[0])
    return [match.groupdict() for name in names if (match := expression.fullmatch(name))]


def _apply(rule: Rule, bindings: Mapping[str, str], tensors: Mapping[str, Tensor], result: Mapped) -> None:
    theirs = tuple(_filled(pattern, bindings) for pattern in _tuple(rule.theirs))
    ours = tuple(_filled(pattern, bindings) for pattern in _tuple(rule.ours))
    absent = [name for name in theirs if name not in tensors]
    twice = [name for name in ours if name in result.weights]
    if absent or twice:
        result.wrong += [f"{name} is missing beside {theirs[0]}" for name in absent]
        result.wrong += [f"{theirs[0]} would be a second {name}" for name in twice]
        return
    try:
        parts = _converted(rule, [tensors[name] for name in theirs], len(ours))
    except (RuntimeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0]
        result.wrong.append(f"{', '.join(theirs)} {list(tensors[theirs[0]].shape)} cannot be converted: {reason}")
        parts = []
    for name in theirs:
        if name in result.unused:
            result.unused.remove(name)
    result.weights.update(zip(ours, parts, strict=False))
    result.matches.append(Match(theirs, ours, tuple(tensors[theirs[0]].shape), _how(rule, len(theirs), len(ours))))


def _converted(rule: Rule, tensors: Sequence[Tensor], parts: int) -> list[Tensor]:
    """`parts` tensors in float32. Copies only where the numbers change or a part of them goes."""
    pieces = [_piece(rule, tensor) for tensor in tensors]
    whole = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=rule.axis)
    finished = [_finished(rule, part) for part in _split(rule, whole, parts)]
    if all(part.data_ptr() != whole.data_ptr() for part in finished):
        let_go(mapped_spans(tensors))
    return finished


def _piece(rule: Rule, tensor: Tensor) -> Tensor:
    if rule.squeeze:
        tensor = tensor.squeeze(0) if tensor.shape[0] == 1 else tensor.squeeze(1)
    if rule.rows is not None:
        # A view would keep the rows that are cut in the file.
        tensor = tensor[rule.rows[0] : rule.rows[1]].clone()
    return tensor.T if rule.transpose else tensor


def _split(rule: Rule, whole: Tensor, parts: int) -> Sequence[Tensor]:
    if parts == 1:
        return [whole]
    length = whole.shape[rule.axis]
    sizes = list(rule.sizes) or [length // parts] * parts
    if len(sizes) != parts or sum(sizes) != length:
        raise ValueError(f"axis {rule.axis} of {length} cannot be split in {parts} parts of {sizes}")
    return torch.split(whole, sizes, dim=rule.axis)


def _finished(rule: Rule, part: Tensor) -> Tensor:
    if part.dtype != torch.float32 or not part.is_contiguous():
        part = in_file(part)
    if rule.scale != 1.0:
        part = in_file(part * rule.scale)
    return part if rule.change is None else rule.change(part).contiguous()


def _how(rule: Rule, theirs: int, ours: int) -> str:
    first, last = rule.rows or (0, None)
    words = {
        f"{theirs} joined": theirs > 1,
        "squeezed": rule.squeeze,
        f"rows {first} to {'the end' if last is None else last}": rule.rows is not None,
        "transposed": rule.transpose,
        f"split in {ours}": ours > 1,
        f"times {rule.scale:.6g}": rule.scale != 1.0,
        rule.changed or "changed": rule.change is not None,
    }
    return ", ".join(word for word, applies in words.items() if applies)


def _expression(pattern: str) -> re.Pattern[str]:
    """`{i}` and other single letters i to n are numbers, other placeholders any part without a dot."""
    seen: set[str] = set()
    out, end = "", 0
    for match in _PLACEHOLDER.finditer(pattern):
        name = match.group(1)
        part = rf"(?P={name})" if name in seen else rf"(?P<{name}>{_kind(name)})"
        out += _literal(pattern[end : match.start()]) + part
        seen.add(name)
        end = match.end()
    return re.compile(out + _literal(pattern[end:]))


def _kind(name: str) -> str:
    return r"\d+" if len(name) == 1 and name in "ijklmn" else r"[^.]+"


def _literal(text: str) -> str:
    return ".*".join(re.escape(part) for part in text.split("*"))


def _filled(pattern: str, bindings: Mapping[str, str]) -> str:
    """Raises CheckpointError for a placeholder that the other side does not have."""

    def value(match: re.Match[str]) -> str:
        name, offset = match.groups()
        if name not in bindings:
            raise CheckpointError(f"pattern {pattern}: {{{name}}} does not occur in the pattern it is filled from")
        return bindings[name] if offset is None else str(int(bindings[name]) + int(offset))

    return _PLACEHOLDER.sub(value, pattern)


def _nearest(name: str, others: Iterable[str]) -> tuple[str, ...]:
    return tuple(difflib.get_close_matches(name, list(others), n=2, cutoff=0.5))


def _tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
