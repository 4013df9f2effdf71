"""What a parity check found: rows for people, a dict for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfexport.agreement import Agreement
    from tfexport.kernel_check import KernelReport


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
    agreement: Agreement | None = None  # with float32, of a reduced precision on given texts
    kernels: KernelReport | None = None  # of a reduced precision: what ran in a decoding step

    @property
    def passed(self) -> bool:
        return all(row.ok for row in self.rows)

    def to_dict(self, complete: bool = False) -> dict[str, Any]:
        """complete: all layers, and the times of operators, which are another time others."""
        found: dict[str, Any] = {
            "passed": self.passed,
            "rows": [{**asdict(row), "ok": row.ok} for row in self.rows],
        }
        if self.quality:
            found["quality"] = self.quality
        if self.agreement is not None:
            found["agreement"] = self.agreement.to_dict(complete)
        if complete and self.kernels is not None:
            found["operators"] = [asdict(operator) for operator in self.kernels.operators]
        return found


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
