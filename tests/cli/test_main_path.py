"""train, init, export, verify, translate, demo: the commands one after the other, on a very small task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tfexport_train.checkpoint import load_checkpoint

SETTINGS = """
output: run
data:
  train: [train.de, train.en]
  valid: [train.de, train.en]
tokenizer: {vocab_size: 330, shared: true}
model:
  preset: modern-small
  changes: {d_model: 32, d_ff: 64, num_heads: 4, num_encoder_layers: 1, num_decoder_layers: 1, max_positions: 48}
training: {max_tokens: 400, max_steps: 4, validate_every: 2, metrics: [exact_match], threads: 1}
generation: {beam_size: 2, max_length: 12}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    pairs = [("ein hund", "a dog"), ("ein ball", "a ball"), ("der see", "the lake"), ("die wiese", "the meadow")] * 6
    (tmp_path / "train.de").write_text("".join(de + "\n" for de, _ in pairs), encoding="utf-8")
    (tmp_path / "train.en").write_text("".join(en + "\n" for _, en in pairs), encoding="utf-8")
    (tmp_path / "small.yaml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path / "small.yaml"


def test_training_writes_a_checkpoint_and_goes_on_with_resume(cli: Cli, config: Path, tmp_path: Path) -> None:
    assert cli("train", config, "-o", tmp_path / "run").status == 0
    assert load_checkpoint(tmp_path / "run" / "ckpt.pt").generation == {"beam_size": 2, "max_length": 12}
    cli("train", config).failed_with(4, "--resume", "--overwrite")
    config.write_text(SETTINGS.replace("max_steps: 4", "max_steps: 6"), encoding="utf-8")
    resumed = cli("train", config, "--resume")
    assert resumed.status == 0, resumed
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert max(json.loads(line)["step"] for line in lines) == 6


def test_time_limit_of_the_command_replaces_that_of_the_file(cli: Cli, config: Path, tmp_path: Path) -> None:
    config.write_text(SETTINGS.replace("max_steps: 4", "max_steps: 100000"), encoding="utf-8")
    assert cli("train", config, "--max-minutes", "0.01").status == 0
    assert (tmp_path / "run" / "ckpt.pt").exists()


def test_export_verify_and_translate_an_untrained_model(cli: Cli, config: Path, tmp_path: Path) -> None:
    checkpoint, bundle = tmp_path / "new" / "ckpt.pt", tmp_path / "bundle.zip"
    assert cli("init", config, "-o", checkpoint).status == 0
    texts = ("--text", tmp_path / "train.de", "--reference", tmp_path / "train.en")
    exported = cli("export", checkpoint, "-o", bundle, "--zip", "--ops", "portable", *texts)
    assert exported.status == 0, exported
    assert "decoder: logits" in exported.out
    assert bundle.is_file()

    found = json.loads(cli("verify", bundle, checkpoint, "--json", *texts).out)
    assert found["passed"]
    assert len(found["quality"]) > 0

    translated = cli("translate", bundle, "-i", tmp_path / "train.de")
    assert translated.status == 0
    assert translated.out.count("\n") == 24


def test_demo_runs_every_stage(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a model too small to learn: the stages, not the quality."""
    from dataclasses import replace

    from tfexport import demo
    from tfexport_train.settings import DatesSettings

    full = demo.demo_settings(tmp_path)
    assert full.data is not None
    small = replace(
        full,
        data=replace(full.data, dates=DatesSettings(train_pairs=400, valid_pairs=10, test_pairs=20)),
        model=replace(full.model, changes={**full.model.changes, "d_model": 32, "d_ff": 32}),
        tokenizer=replace(full.tokenizer, vocab_size=600, target_vocab_size=300),
        training=replace(full.training, max_steps=2, validate_every=2),
    )
    monkeypatch.setattr(demo, "demo_settings", lambda output: small)
    result = cli("demo", "--output", tmp_path, "--json")
    assert result.status == 0, result
    found = json.loads(result.out)
    assert list(found["seconds"]) == ["train", "export", "verify", "translate"]
    assert found["parity"]["passed"]
    assert len(found["outcome"]["examples"]) == 8
    assert found["outcome"]["unseen"] == 20
    assert Path(found["bundle"]).is_dir()
