"""Worker processes that take turns: whoever is not asked stands still and uses no core."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.errors import BenchmarkError
from benchmarks.places import ROOT, SOURCES
from benchmarks.roster import Entry


def environment(entry: Entry, threads: int) -> dict[str, str]:
    """Of a contender's process: equal threads for every library that reads the environment."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, SOURCES)),
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        **entry.environment,
    }


class Worker:
    """One contender in its own process, stopped whenever it is not asked.

    Threads of most libraries spin for a while after their work; a stopped process cannot disturb the next.
    """

    def __init__(self, entry: Entry, python: Path, model: Path, threads: int) -> None:
        self.entry = entry
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.worker", entry.module, str(model), str(threads)],
            cwd=ROOT,
            env=environment(entry, threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
        )
        try:
            self._answer()  # the model is loaded
        except BaseException:
            self.close()
            raise

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Raises BenchmarkError when the process ends instead of answering."""
        assert self._process.stdin
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def is_stopped(self) -> bool:
        """Waits until the system has stopped it; False when the process ended instead."""
        return os.WIFSTOPPED(os.waitpid(self._process.pid, os.WUNTRACED)[1])

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(BrokenPipeError):
                if stream:
                    stream.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError(f"{self.entry.name}: {self._last_words()}")
        self._process.send_signal(signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"ended with status {self._process.returncode}"


class Arena:
    """The workers of one number of threads, all loaded."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = {worker.entry.name: worker for worker in workers}

    def take_turns(
        self, names: Sequence[str], order: Mapping[str, Any], rounds: int
    ) -> dict[str, list[dict[str, Any]]]:
        """The same order to all, one after the other, `rounds` times; each round begins with another one."""
        answers: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for turn in range(rounds):
            first = turn % len(names)
            for name in (*names[first:], *names[:first]):
                answers[name].append(self.workers[name].ask(order))
        return answers

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.workers.values():
            worker.close()
