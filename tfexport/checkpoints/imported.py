"""What an importer is asked, what it gives, and how it says that facts are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tfexport_train.checkpoint import Checkpoint
from tfexport_train.errors import CheckpointError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ImportOptions:
    """What a file cannot tell."""

    config: Mapping[str, Any] = field(default_factory=dict)  # fields of EncoderDecoderConfig and a form's own facts
    source_tokenizer: Path | None = None  # .model or .spm, vocab.txt, dict.txt, tokenizer.json
    target_tokenizer: Path | None = None  # None: as the source's
    source_language: str | None = None  # where one model knows several
    target_language: str | None = None
    key_map: Path | None = None  # YAML, from their weight names to ours
    reference: str | None = None  # "module:factory" of the user's own class, which the import is compared with
    ids: bool = False  # no tokenizer: text is ids in decimal


@dataclass(frozen=True)
class Match:
    """Weights of a foreign file and what became of them."""

    theirs: tuple[str, ...]  # more than one: concatenated; none: a constant
    ours: tuple[str, ...]  # more than one: split; none: dropped
    shape: Shape  # of the first of theirs
    how: str = ""  # such as "transposed, split in 3"


@dataclass(frozen=True)
class LeftOver:
    """A weight that has no counterpart."""

    name: str
    shape: Shape
    nearest: tuple[str, ...] = ()  # names on the other side that look like it


@dataclass(frozen=True)
class Explanation:
    """How the names of a foreign file met ours."""

    matches: tuple[Match, ...] = ()
    missing: tuple[LeftOver, ...] = ()  # ours that nothing filled
    unused: tuple[LeftOver, ...] = ()  # theirs that no rule took
    wrong: tuple[str, ...] = ()  # shapes that do not fit, each a sentence

    @property
    def complete(self) -> bool:
        return not (self.missing or self.unused or self.wrong)


@dataclass(frozen=True)
class Imported:
    """A foreign checkpoint in our form."""

    checkpoint: Checkpoint
    format: str  # for people: "Hugging Face folder, Marian"
    notes: tuple[str, ...] = ()  # what was decided and should be said
    explanation: Explanation = Explanation()


class Format(Protocol):
    """One kind of foreign file. A module of this package exports one as FORMAT."""

    @property
    def name(self) -> str: ...

    def recognises(self, path: Path) -> bool:
        """Cheap, and never raises."""

    def read(self, path: Path, options: ImportOptions) -> Imported:
        """Raises CheckpointError, of which MissingFacts and MappingError are kinds: one line each."""


@dataclass(frozen=True)
class Fact:
    """Something that the file does not tell."""

    name: str  # as in --set NAME=VALUE, or a flag such as --source-tokenizer
    meaning: str  # with the choices


class MissingFacts(CheckpointError):  # noqa: N818  names what is missing, as the message does
    """Everything that is missing at once, with the shapes that were seen.

    `found` holds what is known so far, by the names of EncoderDecoderConfig.
    """

    def __init__(
        self,
        path: Path,
        format_name: str,
        missing: Sequence[Fact],
        found: Mapping[str, Any],
        shapes: Mapping[str, Shape],
        explanation: Explanation = Explanation(),
    ) -> None:
        self.format, self.missing, self.found, self.shapes = format_name, tuple(missing), dict(found), dict(shapes)
        self.explanation = explanation
        wanted = "; ".join(f"{fact.name} ({fact.meaning})" for fact in missing)
        seen = ", ".join(f"{name} {value}" for name, value in found.items())
        super().__init__(
            f"{path}: {format_name}: the file does not tell: {wanted}. Found: {seen or 'nothing'}. "
            f"Shapes: {shapes_in_words(shapes)}. Give facts with --set NAME=VALUE or in a YAML file with --config"
        )


class MappingError(CheckpointError):
    """Weights that are missing, left over or of the wrong shape; `explanation` has all of them."""

    def __init__(self, path: Path, explanation: Explanation) -> None:
        self.explanation = explanation
        problems = [f"missing {_left_over(item)}" for item in explanation.missing]
        problems += [f"unused {_left_over(item)}" for item in explanation.unused]
        problems += explanation.wrong
        super().__init__(f"{path}: weights do not fit: {shortened(problems)}")


def shapes_in_words(shapes: Mapping[str, Shape], limit: int = 8) -> str:
    """What is in no layer first, then first layers: "b [9]; a.0.w [8, 8]; and 3 more"."""
    numbers = {name: [int(part) for part in name.split(".") if part.isdigit()] for name in shapes}
    shown = sorted((name for name in shapes if not any(numbers[name])), key=lambda name: bool(numbers[name]))
    return shortened([f"{name} {list(shapes[name])}" for name in shown], limit) if shown else "none"


def shortened(items: Sequence[str], limit: int = 6) -> str:
    more = f"; and {len(items) - limit} more" if len(items) > limit else ""
    return "; ".join(items[:limit]) + more


def _left_over(item: LeftOver) -> str:
    near = f" (nearest: {', '.join(item.nearest)})" if item.nearest else ""
    return f"{item.name}{f' {list(item.shape)}' if item.shape else ''}{near}"
