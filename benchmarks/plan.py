"""Which rows are measured, and what each must show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

FORCED_TOKENS = 64
SHORT, LONG = 20, 200  # source tokens, `eos` counted

OURS = ("tfexport fp32", "tfexport int8", "tfexport calibrated int8", "tfexport int4")
CTRANSLATE2 = ("CTranslate2 int8", "CTranslate2 float32")
FLOAT_PEERS = ("Optimum fp32", "transformers fp32", "PyTorch, cached")
RECOMPUTING = "PyTorch, recomputing"


@dataclass(frozen=True)
class Row:
    """One job for several contenders."""

    threads: int
    batch: int | None  # sentences in a call; None: the whole text at once
    beam: int
    contenders: tuple[str, ...]
    source: int | None = SHORT  # tokens of each source; None: text as it is
    tokens: int | None = FORCED_TOKENS  # forced; None: natural lengths
    model: str = "base"  # or "trained"

    @property
    def label(self) -> str:
        batch = f"B{self.batch}" if self.batch else "all"
        source = f" S{self.source}" if self.source not in (None, SHORT) else ""
        tokens = f" T{self.tokens}" if self.tokens not in (None, FORCED_TOKENS) else ""
        return f"{batch} K{self.beam}{source}{tokens}"


@dataclass(frozen=True)
class Target:
    """What the time of `peer` over that of `ours` must be, and should be."""

    peer: str
    ours: str
    threads: int
    label: str  # of the row
    must: float
    goal: float


def _targets(peer: str, ours: str, threads: int, *wanted: tuple[float, float]) -> list[Target]:
    labels = ("B1 K1", "B1 K4", "B8 K1", "B8 K4", "B32 K4")
    return [Target(peer, ours, threads, label, *pair) for label, pair in zip(labels, wanted, strict=False)]


_CTRANSLATE2_INT8 = {
    2: ((1.5, 2.5), (1.3, 2), (1.1, 1.6), (1.15, 1.5), (1.1, 1.4)),
    1: ((1.5, 2.5), (1.5, 2.2), (1.3, 1.8), (1.1, 1.5), (1.1, 1.4)),
}  # by threads
TARGETS = (
    *(
        target
        for ours in ("tfexport int8", "tfexport calibrated int8")
        for threads, wanted in _CTRANSLATE2_INT8.items()
        for target in _targets("CTranslate2 int8", ours, threads, *wanted)
    ),
    *_targets("CTranslate2 int8", "tfexport int4", 2, (2.2, 3), (1.4, 2)),
    *_targets("Optimum fp32", "tfexport fp32", 2, (1.5, 2), (3.3, 4.5), (2.6, 3.5), (2.4, 3), (1.8, 2.5)),
    Target(RECOMPUTING, "tfexport fp32", 2, "B1 K1 T100", 10, 30),
)
PAIRS = (
    *dict.fromkeys((t.peer, t.ours) for t in TARGETS),
    ("CTranslate2 float32", "tfexport fp32"),
    ("PyTorch, cached", "tfexport fp32"),
    ("transformers fp32", "tfexport fp32"),
)
"""Which ratios are worth a line: the peer, and our bundle of the same kind."""


def rows(extent: str, threads: Sequence[int]) -> list[Row]:
    """Of random weights with forced lengths; `extent` is quick, default or full."""
    grid = {
        "quick": [(1, 1), (8, 4)],
        "default": [(1, 1), (1, 4), (8, 1), (8, 4), (32, 4)],
        "full": list(product((1, 8, 32), (1, 4))),
    }[extent]
    found = [Row(t, b, k, _contenders(extent, t)) for t, (b, k) in product(threads, grid)]
    if extent == "full":
        found += [replace(row, source=LONG) for row in found]
    elif extent == "default":
        found += [Row(t, b, k, OURS + CTRANSLATE2, source=LONG) for t, (b, k) in product(threads[:1], [(1, 1), (8, 4)])]
    looped = Row(threads[0], 1, 1, ("tfexport fp32", "PyTorch, cached", RECOMPUTING), tokens=100)
    return [*found, *([looped] if extent != "quick" else [])]


def trained_rows(extent: str, threads: Sequence[int]) -> list[Row]:
    """Of a trained model on its own text, until it ends each sentence itself."""
    grid = [(1, 1), (None, 4)] if extent == "quick" else list(product((1, None), (1, 4)))
    return [
        Row(t, b, k, _contenders(extent, t), None, None, "trained")
        for t, (b, k) in product(threads if extent == "full" else threads[:1], grid)
    ]


def _contenders(extent: str, threads: int) -> tuple[str, ...]:
    """The slow ones only where a target asks for them, unless everything is wanted."""
    return OURS + CTRANSLATE2 + (FLOAT_PEERS if threads == 2 or extent == "full" else ())
