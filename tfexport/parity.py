"""What a parity check found: rows for people, a dict for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class ParityRow:
    name: str  # what was compared
    difference: float  # the worst absolute difference, or the number of sentences that differ
    limit: float
    compared: int  # how many numbers or sentences
    where: str = ""  # of the worst: graph, layer, step, sentence

    @property
    def ok(self) -> bool:
        return self.difference <= self.limit  # NaN is not


@dataclass(frozen=True)
class ParityReport:
    rows: tuple[ParityRow, ...]
    quality: dict[str, float] = field(default_factory=dict)  # BLEU and chrF of both, where references were given

    @property
    def passed(self) -> bool:
        return all(row.ok for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        rows = [{**asdict(row), "ok": row.ok} for row in self.rows]
        return {"passed": self.passed, "rows": rows, **({"quality": self.quality} if self.quality else {})}


@dataclass
class Worst:
    """Keeps the largest difference and where it was."""

    difference: float = 0.0
    where: str = ""
    compared: int = 0

    def see(self, difference: float, where: str, compared: int = 1) -> None:
        self.compared += compared
        if not difference <= self.difference:  # also when it is NaN
            self.difference, self.where = difference, where

    def row(self, name: str, limit: float) -> ParityRow:
        return ParityRow(name, self.difference, limit, self.compared, self.where)
