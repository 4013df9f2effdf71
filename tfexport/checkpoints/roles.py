"""Which tensor around a Transformer is what: by shape first, by words in its name where shapes leave a choice.

Everything that is found this way is told, and what stays open is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tfexport.checkpoints.facts_file import check_names
from tfexport.checkpoints.imported import Fact
from tfexport.checkpoints.mapping import same

ROLES = ("source_embedding", "target_embedding", "output", "source_positions", "target_positions")
_WORDS = {
    "source": {"src", "source", "enc", "encoder", "input"},
    "target": {"tgt", "trg", "target", "dec", "decoder"},
    "output": {"out", "output", "proj", "projection", "fc", "generator", "head", "logits", "lm", "linear", "unembed"},
    "positions": {"pos", "pe", "position", "positional", "positions"},
}


@dataclass(frozen=True)
class Roles:
    names: Mapping[str, str]  # role to the tensor's name
    missing: Sequence[Fact]
    notes: Sequence[str]


def find_roles(tensors: Mapping[str, Tensor], width: int, given: Mapping[str, Any], path: Path) -> Roles:
    """tensors: what is left when both stacks are taken; width: d_model; given: roles by --set. Raises ConfigError."""
    named = {role: str(given[role]) for role in ROLES if role in given}
    check_names(named.values(), tensors, f"{path}: weights outside the stacks")
    tables = [name for name, tensor in tensors.items() if _is_table(name, tensor, width)]
    matrices = [n for n, t in tensors.items() if t.dim() == 2 and t.shape[1] == width and n not in tables]
    found = dict(named)
    rest = [name for name in matrices if name not in named.values()]
    if "output" not in found and (output := _output(rest, tensors)):
        found["output"] = output
    rest = [name for name in rest if name not in found.values()]
    _embeddings(found, rest, tensors)
    _positions(found, tables)
    missing = [
        Fact(
            role, "the name of its table; in question: " + ", ".join(f"{n} {list(tensors[n].shape)}" for n in matrices)
        )
        for role in ("source_embedding", "target_embedding")
        if role not in found
    ]
    missing += [
        Fact(f"{side}_positions", f"the name of its table: {', '.join(tables)}")
        for side in ("source", "target")
        if tables and f"{side}_positions" not in found
    ]
    notes = [
        f"taken as {role}: {name} {list(tensors[name].shape)}" for role, name in found.items() if role not in named
    ]
    if "output" not in found and not missing:
        notes.append("no projection in the file, so it is the table of the target embedding")
    return Roles(found, missing, notes)


def _output(names: list[str], tensors: Mapping[str, Tensor]) -> str | None:
    """The matrix with a bias beside it, or the one that is called so."""
    biased = [n for n in names if n.endswith("weight") and n.removesuffix("weight") + "bias" in tensors]
    called = [name for name in names if _words(name) & _WORDS["output"]]
    return next((found[0] for found in (biased, called) if len(found) == 1), None)


def _embeddings(found: dict[str, str], names: list[str], tensors: Mapping[str, Tensor]) -> None:
    wanted = [role for role in ("source_embedding", "target_embedding") if role not in found]
    if len(names) == 1 and len(wanted) == 2:
        found["source_embedding"] = names[0]
        if "output" in found and tensors[found["output"]].shape == tensors[names[0]].shape:
            found["target_embedding"] = names[0]
        return
    for role in wanted:
        called = [name for name in names if _words(name) & _WORDS[role.partition("_")[0]]]
        if len(called) == 1:
            found[role] = called[0]
    if len(names) == len(wanted) == 2 and not {*wanted} & {*found}:
        _by_output_size(found, names, tensors)
    left = [name for name in names if name not in found.values()]
    open_roles = [role for role in wanted if role not in found]
    if len(left) == len(open_roles) == 1:
        found[open_roles[0]] = left[0]


def _by_output_size(found: dict[str, str], names: list[str], tensors: Mapping[str, Tensor]) -> None:
    """Two tables of unlike size: the target's is as large as the projection. Two that are equal may stand for both."""
    if same(tensors[names[0]], tensors[names[1]]):
        found["source_embedding"], found["target_embedding"] = names
    elif "output" in found:
        size = tensors[found["output"]].shape[0]
        fitting = [name for name in names if tensors[name].shape[0] == size]
        if len(fitting) == 1:
            found["target_embedding"] = fitting[0]


def _positions(found: dict[str, str], tables: list[str]) -> None:
    for side in ("source", "target"):
        role = f"{side}_positions"
        called = tables if len(tables) == 1 else [name for name in tables if _words(name) & _WORDS[side]]
        if role not in found and len(called) == 1:
            found[role] = called[0]


def _is_table(name: str, tensor: Tensor, width: int) -> bool:
    if tensor.dim() == 3:
        return tensor.shape[2] == width and 1 in tensor.shape[:2]
    return tensor.dim() == 2 and tensor.shape[1] == width and bool(_words(name) & _WORDS["positions"])


def _words(name: str) -> set[str]:
    return set(re.split(r"[._\d]+", name.lower()))
