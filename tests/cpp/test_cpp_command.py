"""tfexport-cli: files, errors, and what it leaves behind."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cpp.built_runtime import Built
from tfexport_runtime.bundle import describe_files, read_bundle, write_manifest

pytestmark = pytest.mark.timeout(1800)  # a first build takes a minute or two


def test_files_are_read_and_written_whole_or_not_at_all(built: Built, tiny_bundle: Path, tmp_path: Path) -> None:
    text, target = tmp_path / "eingang.txt", tmp_path / "ausgang.txt"
    text.write_text("ein hund\n\nrote wiese", encoding="utf-8")
    asked = [str(tiny_bundle), "--threads=1", "--parallel", "2", "-i", str(text), "--output", str(target)]
    assert built.run(*asked) == ""
    written = target.read_text(encoding="utf-8")
    assert written == built.run(str(tiny_bundle), "--threads", "1", text="ein hund\n\nrote wiese\n")
    text.write_bytes(b"ein hund\n\xff\n")
    done = subprocess.run(
        [built.cli, *asked], capture_output=True, encoding="utf-8", env=built.environment, check=False
    )
    assert (done.returncode, done.stderr) == (4, f"tfexport-cli: {text}, line 2 is not UTF-8; convert it first\n")
    assert target.read_text(encoding="utf-8") == written
    assert sorted(tmp_path.iterdir()) == [target, text]


def test_the_command_leaves_nothing_in_the_home_folder(built: Built, tiny_bundle: Path, tmp_path: Path) -> None:
    """ONNX Runtime would note its use there."""
    variables = ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY")
    environment = {name: value for name, value in built.environment.items() if name not in variables}
    command = [built.cli, tiny_bundle, "--threads", "1"]
    subprocess.run(command, input=b"x\n", capture_output=True, env={**environment, "HOME": str(tmp_path)}, check=True)
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_one_line_with_the_place(built: Built, tiny_bundle: Path) -> None:
    command = [built.cli, tiny_bundle, "--threads", "1"]
    done = subprocess.run(command, input=b"gut\n\xff\n", capture_output=True, env=built.environment, check=False)
    assert done.returncode == 4
    assert done.stderr == b"tfexport-cli: input, line 2 is not UTF-8; convert it first\n"


def test_a_provider_that_is_not_there_is_named(built: Built, tiny_bundle: Path, tiny_portable_bundle: Path) -> None:
    answers = []
    for bundle, name in ((tiny_portable_bundle, "cuda"), (tiny_bundle, "tpu"), (tiny_bundle, "cuda")):
        command = [built.cli, bundle, "--provider", name]
        done = subprocess.run(command, input=b"", capture_output=True, env=built.environment, check=False)
        answers.append((done.returncode, done.stderr.count(b"\n"), done.stderr))
    assert answers[0][:2] == (5, 1)
    assert answers[0][2].startswith(b"tfexport-cli: CUDAExecutionProvider is not available here")
    assert answers[1] == (2, 1, b"tfexport-cli: --provider must be one of cpu, cuda, not tpu\n")
    assert answers[2][:2] == (5, 1)
    assert b"for CUDA export it with --ops portable" in answers[2][2]
    assert built.run(str(tiny_bundle), "--provider", "cpu", "--threads", "1", text="x\n")


def test_debug_shows_what_an_error_came_from(built: Built, tiny_bundle: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_bundle, tmp_path / "bundle")
    (folder / "encoder.onnx").write_bytes(b"")  # a graph without anything
    manifest = read_bundle(tiny_bundle).manifest
    write_manifest(folder, replace(manifest, files=describe_files(folder)))
    shown = []
    for more in ([], ["--debug"]):
        command = [built.cli, folder, "--threads", "1", *more]
        done = subprocess.run(command, input=b"", capture_output=True, env=built.environment, check=False)
        assert done.returncode == 4
        shown.append(done.stderr.decode().splitlines())
    assert len(shown[0]) == 1
    assert shown[1][-1] == shown[0][0]
    assert any(line.startswith("which came from Ort::Exception: ") for line in shown[1])
