"""`python -m benchmarks.worker MODULE MODEL THREADS`: one contender, at the orders of its parent.

Each line of stdin is a JSON object, and so is each line of the answer:

    {"do": "time", "work": {...}, "seconds": 0.5}   {"seconds": [...]}: as many runs as fit, one at least
    {"do": "run", "work": {...}}                    {"ids": [[...]], "log_probabilities": [...]}
    {"do": "steps", "text": "...", "tokens": 500}   {"seconds": [...]}: between the ends of the steps

The first answer, {"ready": true}, comes when the model is loaded. What a library prints goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, cast

from benchmarks.work import Contender, Job, StepTimer, Work


def main() -> int:
    module, model, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library that prints must not disturb the answers
    contender: Contender = importlib.import_module(f"benchmarks.contenders.{module}").load(model, threads)
    _answer(answers, {"ready": True})
    desk = _Desk(contender)
    for line in sys.stdin:
        _answer(answers, desk.obey(json.loads(line)))
    return 0


class _Desk:
    """Keeps the job of the last work, so that what is prepared is prepared once."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.work: Work | None = None
        self.job: Job = list

    def obey(self, order: Mapping[str, Any]) -> dict[str, Any]:
        if order["do"] == "time":
            return {"seconds": _timed(self._job(order), order["seconds"])}
        if order["do"] == "run":
            outputs = self._job(order)()
            return {
                "ids": [list(o.ids) for o in outputs],
                "log_probabilities": [o.log_probability for o in outputs],
            }
        ends = cast(StepTimer, self.contender).step_ends(order["text"], order["tokens"])
        return {"seconds": [after - before for before, after in pairwise(ends)]}

    def _job(self, order: Mapping[str, Any]) -> Job:
        work = Work.from_dict(order["work"])
        if work != self.work:
            self.job = self.contender.prepare(work)
            self.work = work
            self.job()  # the first run asks for memory
        return self.job


def _timed(job: Job, wanted_seconds: float) -> list[float]:
    seconds: list[float] = []
    while not seconds or sum(seconds) + min(seconds) <= wanted_seconds:
        start = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - start)
    return seconds


def _answer(stream: IO[str], content: Mapping[str, Any]) -> None:
    stream.write(json.dumps(content) + "\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
