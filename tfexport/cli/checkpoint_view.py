"""Checkpoints as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tfexport.cli.console import print_table

if TYPE_CHECKING:
    from tfexport.checkpoints.imported import Explanation, Imported, MissingFacts


def show_imported(imported: Imported) -> None:
    checkpoint = imported.checkpoint
    tokenizers = [f"{side.kind} of {side.tokenizer(0).size}" for side in (checkpoint.source, checkpoint.target)]
    rows = [["tokenizers", ", ".join(tokenizers)], *([["note", note] for note in imported.notes])]
    print_table(imported.format, ["", ""], rows)
    _show_config(checkpoint.config.to_dict())
    _show_shapes({name: tuple(tensor.shape) for name, tensor in checkpoint.weights.items()})


def show_missing(facts: MissingFacts) -> None:
    print_table(f"{facts.format}: what is missing", ["fact", "meaning"], [[f.name, f.meaning] for f in facts.missing])
    _show_config(facts.found)
    _show_shapes(facts.shapes)


def show_explanation(explanation: Explanation) -> None:
    """What became of every weight, and what has no counterpart."""
    matches = [
        [" + ".join(m.theirs) or "-", _shape(m.shape), ", ".join(m.ours) or "-", m.how] for m in explanation.matches
    ]
    print_table("Matched", ["theirs", "shape", "ours", "how"], matches)
    for title, left in (("Missing", explanation.missing), ("Unused", explanation.unused)):
        rows = [[item.name, _shape(item.shape), ", ".join(item.nearest)] for item in left]
        print_table(f"{title}: {len(rows)}", ["weight", "shape", "nearest names"], rows)
    if explanation.wrong:
        print_table(f"Wrong: {len(explanation.wrong)}", [""], [[sentence] for sentence in explanation.wrong])


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    return asdict(explanation)


def imported_json(imported: Imported) -> dict[str, Any]:
    checkpoint = imported.checkpoint
    sides = {"source": checkpoint.source, "target": checkpoint.target}
    return {
        "format": imported.format,
        "config": checkpoint.config.to_dict(),
        "missing": [],
        "tokenizers": {name: {"kind": s.kind, "size": s.tokenizer(0).size} for name, s in sides.items()},
        "generation": checkpoint.generation,
        "shapes": {name: list(tensor.shape) for name, tensor in checkpoint.weights.items()},
        "notes": list(imported.notes),
    }


def missing_json(facts: MissingFacts) -> dict[str, Any]:
    return {
        "format": facts.format,
        "config": facts.found,
        "missing": [asdict(fact) for fact in facts.missing],
        "shapes": {name: list(shape) for name, shape in facts.shapes.items()},
    }


def _show_config(config: Mapping[str, Any]) -> None:
    print_table("Configuration", ["", ""], [[name, str(value)] for name, value in config.items()])


def _show_shapes(shapes: Mapping[str, Sequence[int]]) -> None:
    print_table("Weights", ["weight", "shape"], [[name, _shape(shape)] for name, shape in shapes.items()])


def _shape(shape: Sequence[int]) -> str:
    return str(list(shape))
