"""The C++ runtime as the tests build it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

SOURCE = ROOT / "runtime" / "cpp"
BUILD = SOURCE / "build" / "main"
DEPENDENCIES = SOURCE / "build" / "dependencies"  # what get_dependencies.sh fetched


@dataclass(frozen=True)
class Built:
    """The programs, and what they need to start."""

    cli: Path
    environment: Mapping[str, str]

    def run(self, *arguments: str, text: str = "") -> str:
        return self._output([self.cli, *arguments], text)

    def replay(self, bundle: Path, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The answers of one process to many requests; see replay.cpp."""
        lines = "".join(json.dumps(request) + "\n" for request in requests)
        out = self._output([self.cli.parent / "tests" / "tfexport-replay", bundle], lines)
        return [json.loads(line) for line in out.splitlines()]

    def _output(self, command: Sequence[str | Path], text: str) -> str:
        done = subprocess.run(
            command, input=text, capture_output=True, encoding="utf-8", env=self.environment, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def missing() -> Iterator[str]:
    yield from (tool for tool in ("cmake", "c++", "ctest") if shutil.which(tool) is None)
    headers = {"nlohmann/json.hpp": "nlohmann-json3-dev", "sentencepiece_processor.h": "libsentencepiece-dev"}
    for header, package in headers.items():
        if not any((folder / header).exists() for folder in (Path("/usr/include"), DEPENDENCIES / "usr" / "include")):
            yield package
    if not (DEPENDENCIES / "include" / "onnxruntime_cxx_api.h").exists():
        yield "ONNX Runtime (make cpp fetches it)"


def build_step(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(map(str, command))}\n{(done.stdout + done.stderr)[-4000:]}")
