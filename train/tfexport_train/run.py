"""What a training run is made of, and how it comes to be: anew or from training.pt."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tfexport_runtime.options import TranslationOptions, check_options
from tfexport_train.batches import BatchStream, ordered_batches
from tfexport_train.checkpoint import Checkpoint, TextSide
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.corpus import Corpus, EncodedPairs, TextPair, encode_pairs, load_corpus
from tfexport_train.errors import ConfigError, DataError
from tfexport_train.evaluate import search_target
from tfexport_train.model import EncoderDecoder
from tfexport_train.progress import Report
from tfexport_train.settings import TrainingSettings, TrainSettings, check_settings
from tfexport_train.tokenization import UNK_ID, train_tokenizers
from tfexport_train.training_state import (
    SavedTraining,
    TrainingProgress,
    check_fingerprint,
    fingerprint,
    load_training,
    random_state,
    restore_random_state,
)
from tfexport_train.validation import Validator


@dataclass
class Run:
    """The moving parts of a run. `model`, `optimizer`, `stream` and `progress` change with every update."""

    settings: TrainSettings
    model: EncoderDecoder
    optimizer: torch.optim.Optimizer
    stream: BatchStream
    progress: TrainingProgress
    source: TextSide
    target: TextSide
    validator: Validator
    tester: Validator | None
    log: MetricsLog
    fingerprint: dict[str, Any]
    device: torch.device

    @property
    def training(self) -> TrainingSettings:
        return self.settings.training

    @property
    def result(self) -> Path:
        return self.settings.output / "ckpt.pt"

    @property
    def state_file(self) -> Path:
        return self.settings.output / "training.pt"

    @property
    def snapshots(self) -> Path:
        return self.settings.output / "checkpoints"

    @property
    def curves(self) -> Path:
        return self.settings.output / "curves.png"

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            self.model.config, self.model.state_dict(), self.source, self.target, self.settings.generation
        )

    def saved(self) -> SavedTraining:
        return SavedTraining(
            self.checkpoint(), self.optimizer.state_dict(), self.progress, random_state(), self.fingerprint
        )

    def autocast(self) -> AbstractContextManager[Any]:
        """bf16 products where asked for; weights, loss and optimizer stay float32."""
        wanted = self.training.precision
        if wanted == "bf16" or (wanted == "auto" and self.device.type == "cuda"):
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()


@dataclass(frozen=True)
class MetricsLog:
    """metrics.jsonl: one record a line."""

    path: Path

    def begin(self, step: int) -> None:
        """Keeps the records up to `step`: a resumed run writes the later ones again."""
        kept = [r for r in self.records() if r["step"] <= step]
        self.path.write_text("".join(json.dumps(r) + "\n" for r in kept), encoding="utf-8")

    def write(self, record: dict[str, Any]) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def records(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]


def prepare(settings: TrainSettings, resume: bool, overwrite: bool, report: Report) -> Run:
    """Reads the text, trains or restores tokenizers, builds or restores the model. Raises before the first update."""
    check_settings(settings)
    state_file = settings.output / "training.pt"
    if state_file.exists() and not resume and not overwrite:
        raise ConfigError(
            f"{settings.output} already holds a run; go on with --resume, replace it with --overwrite, "
            "or choose another output folder"
        )
    saved = load_training(state_file) if resume else None
    corpus = load_corpus(settings.data)
    if settings.training.threads is not None:
        torch.set_num_threads(settings.training.threads)
    if saved is None:
        source, target = train_tokenizers(corpus.train, settings.tokenizer)
    else:
        source, target = saved.checkpoint.source, saved.checkpoint.target
    run = _assembled(settings, corpus, source, target, saved)
    if saved is not None:
        _restore(run, saved, state_file)
    else:
        _clear(settings.output)
    run.log.begin(run.progress.step)
    report.message(_described(run, corpus))
    return run


def _assembled(
    settings: TrainSettings, corpus: Corpus, source: TextSide, target: TextSide, saved: SavedTraining | None
) -> Run:
    training = settings.training
    tokenizers = source.tokenizer(UNK_ID), target.tokenizer(UNK_ID)
    config = settings.model.config(tokenizers[0].size, tokenizers[1].size)
    options = TranslationOptions().with_changes(settings.generation)
    check_options(options, search_target(config, config.target_vocab_size))

    def encoded(pairs: Sequence[TextPair]) -> EncodedPairs:
        return encode_pairs(pairs, *tokenizers, config)

    def validator(pairs: Sequence[TextPair]) -> Validator:
        return Validator(pairs, encoded(pairs), source, target, training, options)

    pairs, device = encoded(corpus.train), _device(training.device)
    if not pairs.sources:
        raise DataError(f"no training pair is left: {pairs.empty} are empty and {pairs.too_long} too long")
    ordered_batches(pairs, training.max_tokens)  # finds a pair that no batch can hold before any work is done
    torch.manual_seed(training.seed)
    model = EncoderDecoder(config).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    return Run(
        settings=settings,
        model=model,
        optimizer=optimizer,
        stream=BatchStream(pairs, training.max_tokens, training.seed, config.pad_id),
        progress=TrainingProgress(),
        source=source,
        target=target,
        validator=validator(corpus.valid),
        tester=validator(corpus.test) if corpus.test else None,
        log=MetricsLog(settings.output / "metrics.jsonl"),
        fingerprint=fingerprint(settings, config, corpus.train),
        device=device,
    )


def _restore(run: Run, saved: SavedTraining, path: Path) -> None:
    check_fingerprint(saved.fingerprint, run.fingerprint, path)
    run.model.load_state_dict(saved.checkpoint.weights)
    run.optimizer.load_state_dict(saved.optimizer)
    run.progress = saved.progress
    run.stream.epoch, run.stream.index = saved.progress.epoch, saved.progress.batch
    restore_random_state(saved.random)


def _clear(folder: Path) -> None:
    """Removes what an older run left; other files of the folder stay."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"output {folder} cannot be made: {error.strerror}") from error
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    for name in ("ckpt.pt", "training.pt", "metrics.jsonl", "curves.png"):
        (folder / name).unlink(missing_ok=True)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"training.device must be auto, cpu or cuda, not {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("training.device is cuda, but PyTorch finds no GPU here; use auto or cpu")
    return device


def _described(run: Run, corpus: Corpus) -> str:
    pairs, config = run.stream.pairs, run.model.config
    dropped = f" ({pairs.empty} empty and {pairs.too_long} too long left out)" if pairs.empty + pairs.too_long else ""
    weights = sum(p.numel() for p in run.model.parameters())
    begin = f"continuing at step {run.progress.step}" if run.progress.step else "starting"
    return (
        f"{begin}: {len(pairs.sources):,} pairs{dropped}, vocabulary {_sizes(config)}, "
        f"{weights / 1e6:.2f} M weights, {run.device.type}"
    )


def _sizes(config: EncoderDecoderConfig) -> str:
    sizes = (config.source_vocab_size, config.target_vocab_size)
    return f"{sizes[0]:,}" if sizes[0] == sizes[1] else f"{sizes[0]:,} and {sizes[1]:,}"
