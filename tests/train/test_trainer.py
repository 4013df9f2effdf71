"""Runs of a few seconds: exact continuation, what is kept, how they stop."""

from __future__ import annotations

import json
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.tiny_run import Recorder, tiny_settings
from tfexport_runtime.options import TranslationOptions
from tfexport_train.averaging import average_checkpoints
from tfexport_train.checkpoint import load_checkpoint
from tfexport_train.errors import CheckpointError, ConfigError, DataError
from tfexport_train.evaluate import translate_with_model
from tfexport_train.settings import TrainSettings
from tfexport_train.trainer import train
from tfexport_train.training_state import load_training


@pytest.fixture(autouse=True)
def no_picture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs; one test keeps it."""
    if "curves" not in request.node.name:
        monkeypatch.setattr("tfexport_train.trainer.draw_curves", lambda records, path: None)


def records(settings: TrainSettings) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (settings.output / "metrics.jsonl").read_text().splitlines()]


def learning_rates(settings: TrainSettings) -> dict[int, float]:
    return {r["step"]: r["learning_rate"] for r in records(settings) if "learning_rate" in r}


def test_twenty_steps_equal_ten_and_ten_more(tmp_path: Path) -> None:
    whole = tiny_settings(tmp_path, accumulation=2)
    train(whole, report=Recorder())
    part = replace(whole, output=tmp_path / "parts")
    train(replace(part, training=replace(part.training, max_steps=10)), report=Recorder())
    torch.manual_seed(99)  # a new process has another generator state
    report = Recorder()
    result = train(part, resume=True, report=report)
    assert result.step == 20
    assert report.steps[0].step == 11
    expected, ours = (load_training(s.output / "training.pt") for s in (whole, part))
    assert (ours.progress.epoch, ours.progress.batch) == (expected.progress.epoch, expected.progress.batch)
    for name, weight in expected.checkpoint.weights.items():
        torch.testing.assert_close(ours.checkpoint.weights[name], weight, atol=1e-6, rtol=0)
    rates = learning_rates(whole)
    assert learning_rates(part) == rates
    assert rates[10] == pytest.approx(0.01 * 10 / 12)
    assert rates[20] == pytest.approx(0.01 * (12 / 20) ** 0.5)


def test_the_folder_holds_the_result_the_state_the_metrics_and_the_curves(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path)
    report = Recorder()
    result = train(settings, report=report)
    assert result.checkpoint == settings.output / "ckpt.pt"
    assert (settings.output / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in (settings.output / "checkpoints").iterdir()) == [
        "step-00000014.pt",
        "step-00000020.pt",
    ]
    steps = [(r["step"], "valid_loss" in r) for r in records(settings)]
    assert steps == [(5, False), (7, True), (10, False), (14, True), (15, False), (20, False), (20, True)]
    assert [s.step for s in report.steps] == list(range(1, 21))
    assert report.steps[-1].fraction == 1.0
    assert report.messages[-1] == "closed"
    assert not list(settings.output.rglob("*.tmp"))


def test_it_learns_and_the_checkpoint_translates_alone(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, max_steps=150, warmup=20, validate_every=75, lr=0.02)
    settings = replace(settings, model=replace(settings.model, changes={**settings.model.changes, "dropout": 0.0}))
    result = train(settings, report=Recorder())
    assert result.valid is not None
    assert result.valid.metrics["exact_match"] >= 90
    checkpoint = load_checkpoint(result.checkpoint)
    texts = ["green cow sees green dog", "", "green cow sees blue cat"]
    assert translate_with_model(checkpoint, texts, TranslationOptions(beam_size=3)) == [
        "gruen kuh sieht gruen hund",
        "",
        "gruen kuh sieht blau katze",
    ]


def test_accumulation_is_the_mean_over_all_tokens(tmp_path: Path) -> None:
    one = tiny_settings(tmp_path, max_steps=1, max_tokens=4000)  # the whole text in one batch
    one = replace(
        one, model=replace(one.model, changes={**one.model.changes, "dropout": 0.0, "activation_dropout": 0.0})
    )
    many = replace(one, training=replace(one.training, max_tokens=80, accumulation=12), output=tmp_path / "many")
    states = []
    for settings in (one, many):
        train(settings, report=Recorder())
        states.append(load_training(settings.output / "training.pt"))
    assert (states[1].progress.epoch, states[1].progress.batch) == (0, 12)
    # Adam's first mean is a tenth of the gradient.
    for expected, ours in zip(*(s.optimizer["state"].values() for s in states), strict=True):
        torch.testing.assert_close(ours["exp_avg"], expected["exp_avg"], atol=1e-7, rtol=1e-4)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_the_run_goes_on(tmp_path: Path, number: int) -> None:
    settings = tiny_settings(tmp_path)
    handler = signal.getsignal(number)
    report = Recorder(at_step=4, action=lambda: os.kill(os.getpid(), number))
    result = train(settings, report=report)
    assert (result.interrupted, result.step) == (True, 4)
    assert "stopped after step 4; the state is saved: go on with --resume" in report.messages
    assert signal.getsignal(number) == handler
    straight = replace(settings, output=tmp_path / "straight")
    train(straight, report=Recorder())
    assert train(settings, resume=True, report=Recorder()).step == 20
    expected, ours = (load_training(s.output / "training.pt") for s in (straight, settings))
    for name, weight in expected.checkpoint.weights.items():
        torch.testing.assert_close(ours.checkpoint.weights[name], weight, atol=1e-6, rtol=0)


def test_a_run_is_neither_overwritten_nor_invented(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, max_steps=1)
    with pytest.raises(CheckpointError, match=r"training\.pt: no such file"):
        train(settings, resume=True, report=Recorder())
    train(settings, report=Recorder())
    before = (settings.output / "ckpt.pt").read_bytes()
    with pytest.raises(ConfigError, match="already holds a run; go on with --resume, replace it with --overwrite"):
        train(settings, report=Recorder())
    assert (settings.output / "ckpt.pt").read_bytes() == before
    assert train(settings, overwrite=True, report=Recorder()).step == 1


def test_resume_refuses_what_would_change_the_course_and_names_it(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, max_steps=2)
    train(settings, report=Recorder())
    changed = replace(settings, training=replace(settings.training, lr=0.5, seed=2, max_steps=4, validate_every=2))
    with pytest.raises(ConfigError, match=r"these changed: training\.lr, training\.seed;"):
        train(changed, resume=True, report=Recorder())
    (tmp_path / "train.tsv").write_text((tmp_path / "train.tsv").read_text().replace("kuh", "huhn"))
    with pytest.raises(ConfigError, match="these changed: the training text;"):
        train(settings, resume=True, report=Recorder())


def test_resume_of_something_else_is_refused(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, max_steps=1)
    train(settings, report=Recorder())
    state = settings.output / "training.pt"
    state.write_bytes((settings.output / "ckpt.pt").read_bytes())
    with pytest.raises(CheckpointError, match="not the state of a training"):
        train(settings, resume=True, report=Recorder())
    state.write_bytes((settings.output / "ckpt.pt").read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="damaged"):
        train(settings, resume=True, report=Recorder())


def test_time_and_patience_end_a_run(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, max_steps=1000, max_minutes=1e-6)
    result = train(settings, report=Recorder())
    assert (result.step, result.reason) == (1, "1e-06 minutes are over")
    # A learning rate that moves nothing gives no gain after the first validation.
    settings = tiny_settings(tmp_path, max_steps=1000, patience=2, lr=1e-30, validate_every=1)
    result = train(settings, overwrite=True, report=Recorder())
    assert (result.step, result.reason) == (3, "2 validations without gain")
    assert result.chosen == "step 1"


def test_the_mean_of_snapshots_is_taken_when_it_is_better(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, max_steps=40, lr=0.08, keep_last=4, average_last=4, validate_every=10)
    report = Recorder()
    result = train(settings, report=report)
    snapshots = [settings.output / "checkpoints" / f"step-{step:08d}.pt" for step in (10, 20, 30, 40)]
    mean, chosen = average_checkpoints(snapshots), load_checkpoint(result.checkpoint)
    best_single = min(r["valid_loss"] for r in records(settings) if "valid_loss" in r)
    message = next(m for m in report.messages if m.startswith("mean of the last 4 snapshots: loss "))
    mean_loss = float(message.split("loss ")[1].split(",")[0])
    assert result.valid is not None
    if mean_loss < best_single:
        assert result.chosen == "the mean of the last 4 snapshots"
        assert all(torch.equal(chosen.weights[name], weight) for name, weight in mean.weights.items())
    else:
        assert result.chosen.startswith("step ")
    assert result.valid.loss == pytest.approx(min(mean_loss, best_single), abs=1e-3)


def test_an_average_is_the_mean_of_each_weight(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, max_steps=4, keep_last=3, validate_every=2)
    train(settings, report=Recorder())
    paths = sorted((settings.output / "checkpoints").iterdir())
    first, second = (load_checkpoint(path) for path in paths)
    average = average_checkpoints(paths)
    for name, weight in average.weights.items():
        torch.testing.assert_close(weight, (first.weights[name] + second.weights[name]) / 2)
    with pytest.raises(CheckpointError, match="no checkpoint to average"):
        average_checkpoints([])


def test_a_loss_that_explodes_stops_with_advice(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no longer a number at step \d+; lower training\.lr"):
        train(tiny_settings(tmp_path, lr=1e38, clip=None, warmup=1), report=Recorder())


def test_a_folder_that_cannot_be_made_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = replace(tiny_settings(tmp_path), output=tmp_path / "file" / "run")
    report = Recorder()
    with pytest.raises(ConfigError, match="cannot be made"):
        train(settings, report=report)
    assert not report.steps


def test_a_full_disk_stops_the_run_and_leaves_what_was_there(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, max_steps=7)
    train(settings, report=Recorder())
    before = {path: path.read_bytes() for path in settings.output.rglob("*.pt")}
    longer = replace(settings, training=replace(settings.training, max_steps=14))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # no file may grow beyond 10 kB
    try:
        with pytest.raises(CheckpointError, match=r"could not be written \(.*free space") as error:
            train(longer, resume=True, report=Recorder())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(error.value)
    assert {path: path.read_bytes() for path in settings.output.rglob("*.pt")} == before
    assert train(longer, resume=True, report=Recorder()).step == 14
