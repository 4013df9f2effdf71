"""A training run, from settings to `ckpt.pt`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from tfexport_train.averaging import average_checkpoints
from tfexport_train.batches import Batch
from tfexport_train.checkpoint import load_checkpoint, save_checkpoint
from tfexport_train.curves import draw_curves
from tfexport_train.errors import CheckpointError, DataError
from tfexport_train.interrupt import Interrupt, interruptible
from tfexport_train.progress import Report, StepReport, report_for
from tfexport_train.run import Run, prepare
from tfexport_train.schedule import learning_rate
from tfexport_train.settings import TrainSettings
from tfexport_train.training_state import save_training
from tfexport_train.validation import Scores, batch_loss

CURVES_EVERY = 60.0  # seconds between pictures during a run


@dataclass(frozen=True)
class TrainResult:
    """How a run ended."""

    checkpoint: Path  # output/ckpt.pt
    step: int  # updates done, over all parts
    seconds: float  # of training, over all parts
    reason: str  # why it stopped
    interrupted: bool  # by the user: go on with resume=True
    chosen: str  # what ckpt.pt holds
    valid: Scores | None  # of ckpt.pt; None where no validation was reached
    test: Scores | None  # of ckpt.pt on the test text, if there is one


def train(
    settings: TrainSettings, resume: bool = False, overwrite: bool = False, report: Report | None = None
) -> TrainResult:
    """Trains, validates and keeps the best; a run that was stopped goes on exactly with `resume`.

    The output folder gets ckpt.pt (the result), training.pt (to go on from), checkpoints/, metrics.jsonl, curves.png.
    Raises ConfigError, DataError or CheckpointError; a folder that holds a run is refused without resume or overwrite.
    """
    report = report or report_for()
    try:
        run = prepare(settings, resume, overwrite, report)
        with interruptible() as interrupt:
            reason = _loop(run, interrupt, report)
        return _stopped(run, report) if interrupt else _finish(run, reason, report)
    except OSError as error:
        raise CheckpointError(f"{settings.output}: cannot be written: {error.strerror or error}") from error
    finally:
        report.close()


def _loop(run: Run, interrupt: Interrupt, report: Report) -> str:
    """Updates until something says stop; returns what did."""
    meter = _Meter(run)
    updates, drawn = _updates(run), meter.seconds()
    while (reason := _reason_to_stop(run, interrupt)) is None:
        meter.add(*_update(run, next(updates)))
        run.progress.seconds = meter.seconds()
        report.step(meter.report())
        if run.progress.step % run.training.log_every == 0:
            run.log.write({"step": run.progress.step, "epoch": run.progress.epoch, **meter.record()})
        if run.progress.step % run.training.validate_every == 0:
            _validate(run, report)
            run.progress.seconds = meter.seconds()
            _save(run)
            if meter.seconds() - drawn > CURVES_EVERY:
                drawn = meter.seconds()
                _draw(run)
            meter.resume()
    return reason


def _reason_to_stop(run: Run, interrupt: Interrupt) -> str | None:
    training, progress = run.training, run.progress
    if interrupt:
        return "interrupted"
    if training.max_steps is not None and progress.step >= training.max_steps:
        return f"{training.max_steps} steps done"
    if training.max_minutes is not None and progress.seconds >= 60 * training.max_minutes:
        return f"{training.max_minutes:g} minutes are over"
    if training.patience is not None and progress.rounds_without_gain >= training.patience:
        return f"{training.patience} validations without gain"
    return None


def _updates(run: Run) -> Iterator[list[Batch]]:
    batches = iter(run.stream)
    while True:
        yield list(islice(batches, run.training.accumulation))


def _update(run: Run, batches: list[Batch]) -> tuple[float, int]:
    """One optimizer step on the mean over the target tokens of all batches. Returns the loss sum and the tokens."""
    tokens, total = sum(b.target_tokens for b in batches), 0.0
    for batch in batches:
        with run.autocast():
            sums = batch_loss(run.model, batch.to(run.device), run.training.label_smoothing)
        (sums.smoothed / tokens).backward()  # type: ignore[no-untyped-call]
        total += sums.smoothed.item()
    if not math.isfinite(total):
        raise DataError(
            f"the loss is no longer a number at step {run.progress.step + 1}; lower training.lr or lengthen the warm-up"
        )
    if run.training.clip is not None:
        torch.nn.utils.clip_grad_norm_(run.model.parameters(), run.training.clip)
    run.progress.step += 1
    rate = learning_rate(run.progress.step, run.training, run.model.config.d_model)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    run.optimizer.step()
    run.optimizer.zero_grad()
    run.progress.epoch, run.progress.batch = run.stream.epoch, run.stream.index
    return total, tokens


def _validate(run: Run, report: Report) -> None:
    """Scores the model, keeps a snapshot, and makes it ckpt.pt if it is the best so far."""
    progress, scores = run.progress, run.validator.scores(run.model, run.training.metric_sentences)
    run.log.write(
        {"step": progress.step, "valid_loss": scores.loss, "valid_perplexity": scores.perplexity, **scores.metrics}
    )
    checkpoint = run.checkpoint()
    name = f"step-{progress.step:08d}.pt"
    save_checkpoint(checkpoint, run.snapshots / name)
    progress.snapshots.append(name)
    while len(progress.snapshots) > run.training.keep_last:
        (run.snapshots / progress.snapshots.pop(0)).unlink(missing_ok=True)
    value = scores.value(run.training.select_by)
    better = progress.best_value is None or value > progress.best_value
    if better:
        progress.best_value, progress.best_step, progress.rounds_without_gain = value, progress.step, 0
        progress.best_of = f"step {progress.step}"
        save_checkpoint(checkpoint, run.result)
    else:
        progress.rounds_without_gain += 1
    report.message(f"step {progress.step}: {scores.described()}{' (best)' if better else ''}")


def _save(run: Run) -> None:
    save_training(run.saved(), run.state_file)


def _draw(run: Run) -> None:
    draw_curves(run.log.records(), run.curves)


def _stopped(run: Run, report: Report) -> TrainResult:
    """The user asked to stop: saves, and leaves the rest to the resumed run."""
    _save(run)
    _draw(run)
    progress = run.progress
    report.message(f"stopped after step {progress.step}; the state is saved: go on with --resume")
    return TrainResult(run.result, progress.step, progress.seconds, "interrupted", True, progress.best_of, None, None)


def _finish(run: Run, reason: str, report: Report) -> TrainResult:
    """Validates the last weights, tries the average and scores what ckpt.pt holds."""
    progress = run.progress
    if f"step-{progress.step:08d}.pt" not in progress.snapshots:
        _validate(run, report)
    _save(run)
    _draw(run)
    if _average_is_better(run, report):
        _save(run)
    model = load_checkpoint(run.result).build_model().to(run.device)
    valid = run.validator.scores(model, None)
    test = run.tester.scores(model, None) if run.tester else None
    report.message(f"{reason}; {run.result} holds {progress.best_of}: {valid.described()}")
    if test:
        report.message(f"test: {test.described()}")
    return TrainResult(run.result, progress.step, progress.seconds, reason, False, progress.best_of, valid, test)


def _average_is_better(run: Run, report: Report) -> bool:
    """Puts the mean of the last snapshots into ckpt.pt if it is better than the best so far."""
    progress, training = run.progress, run.training
    files = [run.snapshots / name for name in progress.snapshots if (run.snapshots / name).exists()]
    files = files[max(len(files) - training.average_last, 0) :]
    if len(files) < 2:
        return False
    average = average_checkpoints(files)
    scores = run.validator.scores(average.build_model().to(run.device), training.metric_sentences)
    value = scores.value(training.select_by)
    report.message(f"mean of the last {len(files)} snapshots: {scores.described()}")
    if progress.best_value is not None and value <= progress.best_value:
        return False
    save_checkpoint(average, run.result)
    progress.best_value, progress.best_of = value, f"the mean of the last {len(files)} snapshots"
    return True


class _Meter:
    """Loss and speed since the last record, validations left out, and the time left with them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began = time.monotonic() - run.progress.seconds
        self._first_step, self._first_second = run.progress.step, run.progress.seconds
        self._loss, self._tokens, self._busy, self._mark = 0.0, 0, 0.0, self.seconds()

    def add(self, loss: float, tokens: int) -> None:
        self._loss += loss
        self._tokens += tokens
        now = self.seconds()
        self._busy += now - self._mark
        self._mark = now

    def resume(self) -> None:
        """Time up to here was not spent on updates."""
        self._mark = self.seconds()

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def report(self) -> StepReport:
        training, step, now = self._run.training, self._run.progress.step, self.seconds()
        fractions, left = [0.0], []
        if training.max_steps is not None:
            fractions.append(step / training.max_steps)
            per_step = (now - self._first_second) / (step - self._first_step)
            left.append(per_step * (training.max_steps - step))
        if training.max_minutes is not None:
            fractions.append(now / (60 * training.max_minutes))
            left.append(60 * training.max_minutes - now)
        return StepReport(step, min(max(fractions), 1.0), self._mean(), self._speed(), min(left, default=None))

    def record(self) -> dict[str, float]:
        """For metrics.jsonl; begins anew."""
        record = {
            "train_loss": self._mean(),
            "learning_rate": self._run.optimizer.param_groups[0]["lr"],
            "tokens_per_second": round(self._speed(), 1),
            "seconds": round(self.seconds(), 2),
        }
        self._loss, self._tokens, self._busy, self._mark = 0.0, 0, 0.0, self.seconds()
        return record

    def _mean(self) -> float:
        return self._loss / self._tokens

    def _speed(self) -> float:
        return self._tokens / max(self._busy, 1e-9)
