"""A disk that is full: one line, status 4, and what was there before stays."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, shell

SETTINGS = """
output: {output}
data:
  dates: {{train_pairs: 300, valid_pairs: 10, test_pairs: 10}}
tokenizer: {{vocab_size: 500, shared: true}}
model:
  preset: modern-small
  changes: {{d_model: 64, d_ff: 64, num_encoder_layers: 1, num_decoder_layers: 1}}
training: {{max_steps: 2, validate_every: 1, metrics: [], threads: 1}}
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that holds 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False, timeout=30)
    except FileNotFoundError:
        pytest.skip("needs `mount` for a small disk")
    if done.returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=30)


def test_export_onto_a_full_disk(cli: Cli, tiny_checkpoint_file: Path, small_disk: Path) -> None:
    cli("export", tiny_checkpoint_file, "-o", small_disk / "bundle").failed_with(4, "no space left")
    assert list(small_disk.iterdir()) == []


def test_init_onto_a_full_disk(cli: Cli, small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SETTINGS.format(output="run"), encoding="utf-8")
    cli("init", tmp_path / "small.yaml", "-o", small_disk / "ckpt.pt").failed_with(4, "No space left")
    assert list(small_disk.iterdir()) == []


def test_train_onto_a_full_disk(cli: Cli, small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SETTINGS.format(output="disk/run"), encoding="utf-8")
    result = cli("train", tmp_path / "small.yaml")
    assert result.status == 4
    assert "No space left" in result.err.splitlines()[-1]
    assert "Traceback" not in result.err
    assert [p.name for p in small_disk.rglob("*") if p.suffix in (".pt", ".tmp")] == []


def test_translate_into_a_file_on_a_full_disk(cli: Cli, tiny_bundle: Path, small_disk: Path) -> None:
    (small_disk / "out.txt").write_text("old", encoding="utf-8")
    flags = ("--json", "--max-length", "8", "-o", small_disk / "out.txt")
    cli("translate", tiny_bundle, *flags, stdin=b"ball\n" * 1000).failed_with(4, "no space left")
    assert [p.read_text(encoding="utf-8") for p in small_disk.iterdir()] == ["old"]


def test_file_beyond_the_allowed_size(tiny_bundle: Path, tmp_path: Path) -> None:
    """As a full disk, for those who may not mount one."""
    (tmp_path / "in.txt").write_text("ball\n" * 1000, encoding="utf-8")
    flags = "--json --max-length 8 -i in.txt -o out.txt"
    done = shell(f"ulimit -f 16; exec tfexport translate {tiny_bundle} {flags}", tmp_path)
    assert done.returncode == 4
    assert done.stderr.decode().splitlines() == ["tfexport: a file would become larger than is allowed here"]
    assert [p.name for p in tmp_path.iterdir()] == ["in.txt"]
