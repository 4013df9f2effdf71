"""Tables of positions in foreign files: a sinusoidal one is recognised, any other is kept as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tfexport.checkpoints.imported import Match
from tfexport.checkpoints.mapping import Mapped
from tfexport_train.layers import sinusoidal_table

_ROUNDING = {torch.float16: 1e-3, torch.bfloat16: 1e-2}
_EXACT = 1e-4  # the angle of a far position is itself rounded


def add_positions(mapped: Mapped, tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Any]:
    """Takes the tables out of what is unused. What they tell: positions and max_positions.

    names: of the table of each side, "source" and "target"; both may be one. A table is [L, d], [1, L, d] or [L, 1, d].
    """
    tables = {side: _flat(tensors[name]) for side, name in names.items()}
    sinusoidal = all(is_sinusoidal(table) for table in tables.values())
    for name in dict.fromkeys(names.values()):
        sides = [side for side, used in names.items() if used == name]
        ours = () if sinusoidal else tuple(f"{side}_embedding.position_table" for side in sides)
        mapped.unused.remove(name)
        mapped.matches.append(
            Match((name,), ours, tuple(tensors[name].shape), "sinusoidal, computed anew" if sinusoidal else "")
        )
    if not sinusoidal:
        weights = {f"{side}_embedding.position_table": table.float().contiguous() for side, table in tables.items()}
        mapped.weights.update(weights)
    longest = min(len(table) for table in tables.values())
    return {"positions": "sinusoidal" if sinusoidal else "learned", "max_positions": longest}


def is_sinusoidal(table: Tensor) -> bool:
    """Whether a table [L, d] is the one of our own formula: sine on even features, cosine on odd."""
    if table.shape[1] % 2:
        return False
    difference = (table.float() - sinusoidal_table(*table.shape)).abs().max()
    return bool(difference <= _ROUNDING.get(table.dtype, _EXACT))


def _flat(table: Tensor) -> Tensor:
    if table.dim() == 2:
        return table
    return table.squeeze(0) if table.shape[0] == 1 else table.squeeze(1)
