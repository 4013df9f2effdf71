"""Writes search_cases.json: search problems over a table model with what the specification makes of them.

`python -m tests.cpp.make_fixtures` from the root of the repository. The table is a function that is written twice, here
and in table_model.h: the logits are numbers of the specified generator, so both have the same bits.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given

from tests.search.cases import Case, examples, expect, search_cases
from tests.search.table_model import LEVELS, Ids, Table
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.random import draw_block, fnv1a_64
from tfexport_runtime.step_model import FloatArray, Target

FIXTURE = Path(__file__).parent / "search_cases.json"
COUNT = 120  # cases of beam search; half as many of sampling


@dataclass
class PhiloxTable(Table):
    """The table with logits that any language can compute."""

    def _logits(self, source: Ids, history: Ids) -> FloatArray:
        stream = fnv1a_64([len(source), *source, *history])
        drawn = [uniform(self.seed, token, 0, stream) for token in range(self.vocab_size)]
        if self.kind == "ties":
            logits = LEVELS[[int(u * len(LEVELS)) for u in drawn]]
        else:
            logits = np.array([8 * u - 4 for u in drawn], np.float32)
        if self.kind == "holes":
            for token in range(self.vocab_size):
                if token not in self.always and uniform(self.seed, token, 1, stream) < 0.5:
                    logits[token] = -np.inf
        for token, amount in self.raised.items():
            logits[token] += np.float32(amount)
        return logits


def uniform(seed: int, token: int, place: int, stream: int) -> float:
    """In [0, 1), with 24 bits."""
    return (draw_block(seed, token, place, stream)[0] >> 8) * 2.0**-24


def collected(count: int, sampling: bool) -> list[Case]:
    """The first cases of the property tests, with the portable table."""
    found: list[Case] = []

    @examples(count)
    @given(search_cases(sampling=sampling))
    def collect(case: Case) -> None:
        t = case.table
        found.append(replace(case, table=PhiloxTable(t.seed, t.vocab_size, t.kind, t.raised, t.always)))

    collect()
    return found


def as_json(case: Case) -> dict[str, Any]:
    """The case and, for each request, its hypotheses and what the callback saw."""
    default = TranslationOptions()
    changed = {f.name: getattr(case.options, f.name) for f in fields(default)}
    table = case.table
    return {
        "table": {
            "seed": table.seed,
            "kind": table.kind,
            "raised": list(table.raised.items()),
            "always": table.always,
        },
        "target": asdict(case.target),
        "options": {name: v for name, v in changed.items() if v != getattr(default, name)},
        "sources": case.sources,
        "prefixes": case.prefixes,
        "cancels": case.cancels,
        "results": [_result(case, request) for request in case.requests()],
    }


def from_json(values: dict[str, Any]) -> Case:
    """The inverse of `as_json`, without the results."""
    table, target = values["table"], values["target"]
    raised = dict(map(tuple, table["raised"]))
    return Case(
        PhiloxTable(table["seed"], target["vocab_size"], table["kind"], raised, tuple(table["always"])),
        Target(**{**target, **{name: tuple(target[name]) for name in ("never_generated", "prefix_ids")}}),
        TranslationOptions().with_changes(values["options"]),
        tuple(map(tuple, values["sources"])),
        tuple(map(tuple, values["prefixes"])),
        tuple((sentence, step) for sentence, step in values["cancels"]),
    )


def _result(case: Case, request: Any) -> dict[str, Any]:
    results, seen = expect(case, request)
    hypotheses = [
        {
            "ids": r.ids,
            "score": r.score,
            "token_scores": [float(np.float32(s)) for s in r.token_scores],
            "finish_reason": r.finish_reason,
        }
        for r in results
    ]
    return {"hypotheses": hypotheses, "seen": [[ids, total] for _, ids, total in seen]}


def main() -> None:
    cases = [as_json(case) for case in collected(COUNT, False) + collected(COUNT // 2, True)]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    FIXTURE.write_text(f'{{"cases": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
