"""Runs commands inside the test process, as the shell would."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tfexport.__main__ import main


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    def failed_with(self, status: int, *words: str) -> None:
        """One line on stderr that holds the words, nothing on stdout."""
        assert self.status == status, self
        assert self.err.count("\n") == 1, self.err
        assert self.err.endswith("\n"), self.err
        assert self.err.startswith("tfexport: "), self.err
        assert "Traceback" not in self.err
        missing = [word for word in words if word not in self.err]
        assert not missing, (missing, self.err)
        assert self.out == ""


Cli = Callable[..., Result]


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """cli("translate", bundle, stdin=b"...")."""

    def run(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        status = main([str(argument) for argument in arguments])
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        return Result(status, captured.out.decode("utf-8"), captured.err.decode("utf-8"))

    return run


@pytest.fixture
def bundle_copy(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A bundle that a test may damage."""
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """A real process, for what pipes and devices do. `tfexport` stands for the command."""
    real = command.replace("tfexport ", f"{sys.executable} -m tfexport ")
    return subprocess.run(["bash", "-c", real], cwd=folder, capture_output=True, timeout=120, check=False)
