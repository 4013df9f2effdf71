"""The repository's own files: no trace of a machine, and versions that fit together."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.repository.shown_commands import ROOT

# Folders of one machine, spelled so that this file does not hold them itself.
_TOPS = ("wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers")
MACHINE_PATHS = re.compile("|".join(rf"(?<![\w.:/-])/{top}/\w" for top in _TOPS))


def repository_files() -> list[Path]:
    """What git has or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False, timeout=60)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_holds_a_path_of_one_machine() -> None:
    files = repository_files()
    assert len(files) > 20
    found = []
    for path in files:
        text = path.read_text(encoding="utf-8", errors="ignore")
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in MACHINE_PATHS.finditer(text)]
    assert found == []


def test_no_data_or_weights_are_part_of_the_repository() -> None:
    large = [(str(p.relative_to(ROOT)), p.stat().st_size) for p in repository_files() if p.stat().st_size > 2**20]
    assert large == []


def test_every_dependency_has_a_tested_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(r for rs in project["optional-dependencies"].values() for r in rs)]
    names = {normal(re.match(r"[\w.-]+", requirement).group()) for requirement in wanted}  # type: ignore[union-attr]
    assert names - {"tfexport", "onnxruntime-gpu"} <= set(constraint_versions())


def test_tested_versions_are_exact_and_are_those_installed_here() -> None:
    from importlib.metadata import version

    versions = constraint_versions()
    assert versions["torch"] == "2.13.0"
    for name in ("numpy", "onnx", "onnxruntime", "sentencepiece", "torch", "typer"):
        assert version(name).partition("+")[0] == versions[name]


def test_license_is_the_whole_apache_text() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert len(text) > 11_000


def constraint_versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs)
    return {normal(name): version for name, version in pairs}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
