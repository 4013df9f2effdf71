"""What the importer must know of one family of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tfexport.checkpoints.hugging_face.folder import Folder
from tfexport.checkpoints.mapping import Rule

PositionTable = Callable[[int, int], Tensor]
"""(positions, d_model) -> what is added to the embedding of each position, [positions, d_model]."""


@dataclass(frozen=True)
class Layout:
    """A config.json in our words."""

    fields: Mapping[str, Any]  # of EncoderDecoderConfig, without vocabulary sizes and special ids
    rules: tuple[Rule, ...]
    drop: tuple[str, ...] = ()  # weights that mean nothing
    positions: PositionTable | None = None  # for positions that are computed
    notes: tuple[str, ...] = ()  # what was decided and should be said


@dataclass(frozen=True)
class Family:
    """One model_type."""

    name: str  # for people
    layout: Callable[[Folder, Mapping[str, Tensor]], Layout]
    start_id: int | None  # where no file says
    unk_id: int  # where there is no tokenizer
    source_bos: bool = False  # whether a source text begins with bos_token_id
