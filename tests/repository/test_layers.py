"""Who may import whom: what ruff forbids, and what really comes along."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.repository.shown_commands import ROOT

PACKAGES = {
    "tfexport": ROOT / "tfexport",
    "tfexport_train": ROOT / "train" / "tfexport_train",
    "tfexport_runtime": ROOT / "runtime" / "python" / "tfexport_runtime",
}
LIGHT = {"torch", "onnx", "onnxscript", "onnx_ir", "typer", "rich", "yaml", "matplotlib", "tfexport", "tfexport_train"}


def modules(package: str) -> list[str]:
    folder = PACKAGES[package]
    names = [".".join((package, *p.relative_to(folder).with_suffix("").parts)) for p in sorted(folder.rglob("*.py"))]
    return [name.removesuffix(".__init__") for name in names]


def imported_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after the statement."""
    code = f"import sys\n{statement}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True, timeout=120)
    return set(done.stdout.split("\n")[-2].split())


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_imports(package: str) -> None:
    found = modules(package)
    assert len(found) > 5
    imported_by("import importlib\n" + "\n".join(f"importlib.import_module({name!r})" for name in found))


def test_no_module_of_the_runtime_brings_a_training_or_export_package() -> None:
    brought = imported_by("\n".join(f"import {name}" for name in modules("tfexport_runtime")))
    assert brought & (LIGHT | {"onnxruntime"}) == set()


def test_no_module_of_training_brings_an_export_package() -> None:
    brought = imported_by("\n".join(f"import {name}" for name in modules("tfexport_train")))
    assert brought & {"onnx", "onnxscript", "onnx_ir", "onnxruntime", "typer", "tfexport"} == set()


def test_settings_and_atomic_files_bring_no_torch() -> None:
    assert "torch" not in imported_by("import tfexport_train.settings, tfexport_train.atomic, tfexport_train.config")


def test_command_line_starts_without_heavy_packages() -> None:
    heavy = {"torch", "onnx", "onnxruntime", "matplotlib", "sacrebleu", "babel", "yaml"}
    assert imported_by("from tfexport.__main__ import main\nmain(['--help'])") & heavy == set()


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("runtime/python/tfexport_runtime/probe.py", "import torch"),
        ("runtime/python/tfexport_runtime/probe.py", "import onnx"),
        ("runtime/python/tfexport_runtime/probe.py", "import onnxruntime"),
        ("runtime/python/tfexport_runtime/probe.py", "from onnxscript import ir"),
        ("runtime/python/tfexport_runtime/probe.py", "import typer"),
        ("runtime/python/tfexport_runtime/probe.py", "from rich.console import Console"),
        ("runtime/python/tfexport_runtime/probe.py", "import yaml"),
        ("runtime/python/tfexport_runtime/probe.py", "from tfexport.export import export_bundle"),
        ("runtime/python/tfexport_runtime/probe.py", "import tfexport_train.config"),
        ("train/tfexport_train/probe.py", "import onnx"),
        ("train/tfexport_train/probe.py", "import onnxruntime"),
        ("train/tfexport_train/probe.py", "import onnxscript"),
        ("train/tfexport_train/probe.py", "import tfexport.verify"),
        ("train/tfexport_train/probe.py", "from tfexport_runtime.session import open_model"),
    ],
)
def test_ruff_forbids_an_import_against_the_layers(file: str, statement: str) -> None:
    assert "TID251" in lint(file, statement)


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("runtime/python/tfexport_runtime/session.py", "import onnxruntime"),
        ("runtime/python/tfexport_runtime/probe.py", "import tfexport_runtime.errors"),
        ("train/tfexport_train/probe.py", "import tfexport_runtime.tokenizer"),
        ("tfexport/probe.py", "import onnx, tfexport_train.config"),
    ],
)
def test_ruff_allows_an_import_along_the_layers(file: str, statement: str) -> None:
    assert "TID251" not in lint(file, statement)


def lint(file: str, statement: str) -> str:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise"]
    done = subprocess.run(
        [*command, "--stdin-filename", file, "-"],
        input=statement + "\n",
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout
