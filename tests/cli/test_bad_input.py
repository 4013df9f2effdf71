"""What is missing, damaged, foreign or dangerous: one line, a status, nothing half-written."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.conftest import Cli

Damage = Callable[[Path], object]


class RunsCode:
    """Unpickling it creates a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.marker), "w"))


# Checkpoints -----------------------------------------------------------------------------------------------------


@pytest.fixture
def refused(cli: Cli, tmp_path: Path, tiny_bundle: Path) -> Callable[..., None]:
    """export and verify both refuse the checkpoint, and export writes nothing."""

    def check(checkpoint: Path, *words: str) -> None:
        before = sorted(tmp_path.rglob("*"))
        cli("export", checkpoint, "-o", tmp_path / "bundle").failed_with(4, checkpoint.name, *words)
        cli("verify", tiny_bundle, checkpoint).failed_with(4, checkpoint.name, *words)
        assert sorted(tmp_path.rglob("*")) == before

    return check


def test_missing_checkpoint(refused: Callable[..., None], tmp_path: Path) -> None:
    refused(tmp_path / "none.pt", "no such file")


def test_folder_as_checkpoint(refused: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "folder.pt").mkdir()
    refused(tmp_path / "folder.pt", "folder")


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.3, 0.9, 0.9999])
def test_truncated_checkpoint(
    refused: Callable[..., None], tiny_checkpoint_file: Path, tmp_path: Path, kept: float
) -> None:
    content = tiny_checkpoint_file.read_bytes()
    (tmp_path / "cut.pt").write_bytes(content[: int(len(content) * kept)])
    refused(tmp_path / "cut.pt")


@pytest.mark.parametrize(
    "content",
    [
        {"encoder.weight": torch.zeros(2, 2)},
        {"model_state_dict": {"w": torch.zeros(1)}, "epoch": 3},
        [torch.zeros(1)],
        torch.zeros(3),
        "text",
        {"format": "tfexport-checkpoint", "format_version": 1},
    ],
)
def test_checkpoint_of_something_else(refused: Callable[..., None], tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "other.pt")
    refused(tmp_path / "other.pt", "checkpoint")


FOREIGN = [b"hello\n", b"\x89PNG\r\n\x1a\n" + bytes(64), b"PK\x03\x04", bytes(1000), b"\x80\x04"]


@pytest.mark.parametrize("content", FOREIGN)
def test_file_that_is_no_checkpoint_at_all(refused: Callable[..., None], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.pt").write_bytes(content)
    refused(tmp_path / "file.pt")


def test_checkpoint_of_a_newer_version(
    refused: Callable[..., None], tiny_checkpoint_file: Path, tmp_path: Path
) -> None:
    content = torch.load(tiny_checkpoint_file, weights_only=True)
    torch.save({**content, "format_version": 99}, tmp_path / "new.pt")
    refused(tmp_path / "new.pt", "99", "upgrade")


def test_checkpoint_without_one_weight(cli: Cli, tiny_checkpoint_file: Path, tmp_path: Path) -> None:
    content = torch.load(tiny_checkpoint_file, weights_only=True)
    del content["weights"]["encoder_norm.weight"]
    torch.save(content, tmp_path / "less.pt")
    cli("export", tmp_path / "less.pt", "-o", tmp_path / "bundle").failed_with(4, "missing encoder_norm.weight")
    assert [p.name for p in tmp_path.iterdir()] == ["less.pt"]


@pytest.mark.parametrize("in_a_zip", [True, False])
def test_pickle_with_code_is_refused_and_not_run(refused: Callable[..., None], tmp_path: Path, in_a_zip: bool) -> None:
    marker, path = tmp_path / "marker", tmp_path / "evil.pt"
    if in_a_zip:
        torch.save({"format": "tfexport-checkpoint", "weights": RunsCode(marker)}, path)
    else:
        path.write_bytes(pickle.dumps({"weights": RunsCode(marker)}))
    refused(path)
    assert not marker.exists()


# Bundles ---------------------------------------------------------------------------------------------------------


def changed(name: str, at: float = 0.5) -> Damage:
    def damage(bundle: Path) -> None:
        content = bytearray((bundle / name).read_bytes())
        content[int(len(content) * at)] ^= 0x20
        (bundle / name).write_bytes(content)

    return damage


def cut(name: str) -> Damage:
    return lambda bundle: (bundle / name).write_bytes((bundle / name).read_bytes()[:-1])


def longer(name: str) -> Damage:
    return lambda bundle: (bundle / name).write_bytes((bundle / name).read_bytes() + b"\0")


def without(name: str) -> Damage:
    return lambda bundle: (bundle / name).unlink()


def newer(bundle: Path) -> None:
    manifest = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    (bundle / "bundle.json").write_text(json.dumps({**manifest, "format_version": 99}), encoding="utf-8")


FILES = ("encoder.onnx", "decoder.onnx", "weights.bin", "shared.spm", "golden.json", "README.md")
DAMAGES: dict[str, Damage] = {
    **{f"{name} with a changed byte": changed(name) for name in FILES},
    **{f"{name} one byte short": cut(name) for name in FILES},
    **{f"{name} one byte longer": longer(name) for name in (*FILES, "bundle.json")},
    **{f"no {name}": without(name) for name in (*FILES, "bundle.json")},
    "an extra file": lambda bundle: (bundle / "extra.bin").write_bytes(b"x"),
    "an extra folder": lambda bundle: (bundle / "more").mkdir(),
    "half a manifest": lambda bundle: os.truncate(bundle / "bundle.json", (bundle / "bundle.json").stat().st_size // 2),
    "a newer format": newer,
    "a manifest that is no JSON": lambda bundle: (bundle / "bundle.json").write_text("{", encoding="utf-8"),
    "a manifest of something else": lambda bundle: (bundle / "bundle.json").write_text("{}", encoding="utf-8"),
    "a link for a file": lambda bundle: ((bundle / "README.md").unlink(), (bundle / "README.md").symlink_to("x")),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_bundle(cli: Cli, bundle_copy: Path, tmp_path: Path, damage: Damage) -> None:
    damage(bundle_copy)
    out = tmp_path / "out.txt"
    cli("translate", bundle_copy, "-o", out, stdin=b"ball\n").failed_with(4, str(bundle_copy))
    cli("inspect", bundle_copy).failed_with(4, str(bundle_copy))
    assert not out.exists()


@pytest.mark.parametrize("command", ["translate", "inspect", "bench"])
def test_bundle_that_is_not_there(cli: Cli, tmp_path: Path, command: str) -> None:
    cli(command, tmp_path / "none", stdin=b"ball\n").failed_with(4, "none", "no such")


def test_file_in_place_of_a_bundle(cli: Cli, tiny_checkpoint_file: Path) -> None:
    cli("translate", tiny_checkpoint_file, stdin=b"ball\n").failed_with(4, tiny_checkpoint_file.name)


def test_verify_tells_a_bundle_of_other_weights(
    cli: Cli, tiny_bundle: Path, tiny_checkpoint_file: Path, tmp_path: Path
) -> None:
    content = torch.load(tiny_checkpoint_file, weights_only=True)
    content["weights"]["decoder_norm.weight"] = content["weights"]["decoder_norm.weight"] * 1.001
    torch.save(content, tmp_path / "other.pt")
    result = cli("verify", tiny_bundle, tmp_path / "other.pt", "--json")
    assert result.status == 3
    assert json.loads(result.out)["passed"] is False
    assert result.err.count("\n") == 1


# Settings, places, text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "word"),
    [("a: [", "YAML"), ("nonsense: 1", "nonsense"), ("", "keys"), ("- 1", "keys"), ("output: run", "training")],
)
def test_bad_settings(cli: Cli, tmp_path: Path, content: str, word: str) -> None:
    config = tmp_path / "bad.yaml"
    config.write_text(content, encoding="utf-8")
    cli("train", config).failed_with(4, "bad.yaml", word)
    cli("init", config, "-o", tmp_path / "ckpt.pt").failed_with(4, "bad.yaml", word)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.yaml"]


def test_missing_settings(cli: Cli, tmp_path: Path) -> None:
    cli("train", tmp_path / "none.yaml").failed_with(4, "none.yaml", "no such file")


@pytest.mark.parametrize("flag", ["--input", "--prefix"])
def test_missing_text(cli: Cli, tiny_bundle: Path, tmp_path: Path, flag: str) -> None:
    cli("translate", tiny_bundle, flag, tmp_path / "none.txt").failed_with(4, "none.txt", "no such file")


def test_output_that_is_a_folder(cli: Cli, tiny_bundle: Path, tmp_path: Path) -> None:
    cli("translate", tiny_bundle, "-o", tmp_path, stdin=b"ball\n").failed_with(4, str(tmp_path), "folder")


def test_output_below_a_file(cli: Cli, tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    cli("translate", tiny_bundle, "-o", tmp_path / "file" / "out.txt", stdin=b"ball\n").failed_with(4, "file")


@pytest.mark.parametrize("command", ["export", "verify"])
def test_text_for_the_check_that_is_not_utf8(
    cli: Cli, tiny_bundle: Path, tiny_checkpoint_file: Path, tmp_path: Path, command: str
) -> None:
    (tmp_path / "bad.txt").write_bytes(b"gut\n\xff\n")
    places = {"export": [tiny_checkpoint_file, "-o", tmp_path / "b"], "verify": [tiny_bundle, tiny_checkpoint_file]}
    cli(command, *places[command], "--text", tmp_path / "bad.txt").failed_with(4, "bad.txt", "line 2", "UTF-8")
    assert not (tmp_path / "b").exists()


def test_export_leaves_alone_what_is_no_bundle(cli: Cli, tiny_checkpoint_file: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work", encoding="utf-8")
    cli("export", tiny_checkpoint_file, "-o", tmp_path / "thesis").failed_with(4, "thesis", "--force")
    assert (tmp_path / "thesis" / "chapter.txt").read_text(encoding="utf-8") == "years of work"


def test_opset_that_cannot_be_written(cli: Cli, tiny_checkpoint_file: Path, tmp_path: Path) -> None:
    cli("export", tiny_checkpoint_file, "-o", tmp_path / "b", "--opset", "11").failed_with(4, "opset 11", "18")
    assert list(tmp_path.iterdir()) == []


# What the command itself does with errors ------------------------------------------------------------------------


def test_debug_shows_where(cli: Cli, tmp_path: Path) -> None:
    for arguments in (["--debug", "inspect", tmp_path / "none"], ["inspect", tmp_path / "none", "--debug"]):
        result = cli(*arguments)
        assert result.status == 4
        assert "Traceback" in result.err


def test_unexpected_error_is_one_line_and_status_1(
    cli: Cli, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("tfexport_runtime.bundle.read_bundle", fail)
    cli("inspect", tiny_bundle).failed_with(1, "ZeroDivisionError: two lines", "--debug")


def test_interrupt_is_status_130(cli: Cli, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tfexport_runtime.bundle.read_bundle", interrupt)
    result = cli("inspect", tiny_bundle)
    assert result.status == 130
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("blocked", "command", "extra"),
    [
        ("typer", ["translate", "b"], "export"),
        ("torch", ["init", "config.yaml", "-o", "ckpt.pt"], "train"),
        ("onnxruntime", ["translate", "BUNDLE"], "cpu"),
    ],
)
def test_missing_package_names_the_extra(
    tiny_bundle: Path, tmp_path: Path, blocked: str, command: list[str], extra: str
) -> None:
    arguments = [str(tiny_bundle) if word == "BUNDLE" else word for word in command]
    block = f"import sys\nsys.modules[{blocked!r}] = None\n"
    code = f"{block}from tfexport.__main__ import main\nsys.exit(main({arguments!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"ball\n", cwd=tmp_path, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 5
    assert done.stderr.count(b"\n") == 1
    assert f'pip install "tfexport[{extra}]"'.encode() in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_bundle_is_not_changed_by_being_used(cli: Cli, bundle_copy: Path, tiny_bundle: Path) -> None:
    before = {p.name: p.read_bytes() for p in tiny_bundle.iterdir()}
    cli("translate", bundle_copy, stdin=b"ball\n")
    cli("inspect", bundle_copy, "--json")
    assert {p.name: p.read_bytes() for p in bundle_copy.iterdir()} == before
    shutil.rmtree(bundle_copy)
