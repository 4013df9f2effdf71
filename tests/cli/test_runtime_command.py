"""`python -m tfexport_runtime`: what a machine without the command line has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def runtime(
    *arguments: object, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tfexport_runtime", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=120, env=environment)


def test_it_gives_what_the_command_line_gives(cli: Cli, tiny_bundle: Path) -> None:
    flags = ("--beam-size", "3", "--n-best", "2", "--max-length", "7", "--scores")
    text = "ein hund\n\nüber die wiese\n".encode()
    done = runtime(tiny_bundle, *flags, stdin=text)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == cli("translate", tiny_bundle, *flags, stdin=text).out


def test_json_is_one_object_a_line(tiny_bundle: Path) -> None:
    done = runtime(tiny_bundle, "--json", "--max-length", "3", stdin=b"ball\n\n")
    assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [1, 2]


def test_nothing_is_left_in_the_home_folder(tiny_bundle: Path, tmp_path: Path) -> None:
    """ONNX Runtime would note its use there."""
    environment = {k: v for k, v in os.environ.items() if k not in ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY")}
    done = runtime(tiny_bundle, stdin=b"ball\n", environment={**environment, "HOME": str(tmp_path)})
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "stdin", "status", "words"),
    [
        (["none"], b"", 4, b"no such file"),
        (["BUNDLE"], b"a\n\xff\n", 4, b"line 2"),
        (["BUNDLE", "--n-best", "3"], b"", 2, b"beam_size"),
        (["BUNDLE", "--provider", "cuda"], b"", 5, b"tfexport[gpu]"),
    ],
)
def test_errors_are_one_line(
    tiny_bundle: Path, tmp_path: Path, arguments: list[str], stdin: bytes, status: int, words: bytes
) -> None:
    if "cuda" in arguments:
        import onnxruntime

        if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
            pytest.skip("this machine has CUDA")
    done = runtime(*[str(tiny_bundle) if a == "BUNDLE" else a for a in arguments], stdin=stdin)
    assert done.returncode == status
    assert done.stderr.count(b"\n") == 1
    assert words in done.stderr
    assert done.stdout == b""


def test_debug_shows_where(tmp_path: Path) -> None:
    assert b"Traceback" in runtime(tmp_path / "none", "--debug").stderr
