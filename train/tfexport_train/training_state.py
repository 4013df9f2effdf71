"""`training.pt`: all that a run needs to go on exactly where it stopped. Lies beside `ckpt.pt`, read with weights_only.

Layout: format, format_version, config, source, target, weights, optimizer, progress (plain values), random (generator
states), fingerprint (what must not change between the parts of a run).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from tfexport_train.checkpoint import Checkpoint, load_untrusted, read_text_side, save_atomically
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.corpus import TextPair
from tfexport_train.errors import CheckpointError, ConfigError
from tfexport_train.settings import TrainSettings

FORMAT = "tfexport-training"
FORMAT_VERSION = 1


@dataclass
class TrainingProgress:
    """Where a run stands, in plain values."""

    step: int = 0  # updates done
    epoch: int = 0  # of the next batch
    batch: int = 0  # index of the next batch in its epoch
    seconds: float = 0.0  # of training, over all parts
    best_value: float | None = None  # of the chosen measure; larger is better
    best_step: int = 0  # of the last gain
    best_of: str = "nothing yet"  # what ckpt.pt holds
    rounds_without_gain: int = 0  # validations since the best
    snapshots: list[str] = field(default_factory=list)  # file names in checkpoints/, oldest first


@dataclass(frozen=True)
class SavedTraining:
    """What training.pt holds."""

    checkpoint: Checkpoint  # config, weights and tokenizers at that step
    optimizer: dict[str, Any]
    progress: TrainingProgress
    random: dict[str, Any]
    fingerprint: dict[str, Any]


def save_training(saved: SavedTraining, path: Path) -> None:
    """Writes atomically. Raises CheckpointError when the disk is full."""
    c = saved.checkpoint
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "config": c.config.to_dict(),
        "source": asdict(c.source),
        "target": asdict(c.target),
        "generation": dict(c.generation),
        "weights": c.weights,
        "optimizer": saved.optimizer,
        "progress": asdict(saved.progress),
        "random": saved.random,
        "fingerprint": saved.fingerprint,
    }
    save_atomically(content, path)


def load_training(path: Path) -> SavedTraining:
    """Raises CheckpointError, in one line, for anything that is not a whole training state of ours."""
    content = load_untrusted(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not the state of a training; resume needs the training.pt of the output folder")
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(f"{path}: training state of format {version}; this version reads {FORMAT_VERSION}")
    try:
        config = EncoderDecoderConfig.from_dict(content["config"])
        sides = read_text_side(content["source"]), read_text_side(content["target"])
        checkpoint = Checkpoint(config, content["weights"], *sides, content["generation"])
        progress = TrainingProgress(**content["progress"])
        return SavedTraining(checkpoint, content["optimizer"], progress, content["random"], content["fingerprint"])
    except (KeyError, TypeError, ConfigError) as error:
        raise CheckpointError(f"{path}: damaged training state: {error}") from error


def random_state() -> dict[str, Any]:
    """The states of PyTorch's generators; the order of the data needs none."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def restore_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def fingerprint(settings: TrainSettings, config: EncoderDecoderConfig, train: Sequence[TextPair]) -> dict[str, Any]:
    """What decides the course of a run. Its length, its validation and where it runs may change."""
    t = settings.training
    free = {
        *("max_steps", "max_minutes", "patience", "validate_every", "metrics", "metric_sentences"),
        *("keep_last", "average_last", "log_every", "device", "precision", "threads"),
    }
    text = hashlib.sha256("\n".join(f"{s}\t{t}" for s, t in train).encode()).hexdigest()
    return {
        **{f"model.{k}": v for k, v in config.to_dict().items()},
        **{f"training.{f.name}": getattr(t, f.name) for f in fields(t) if f.name not in free},
        "the training text": text,
    }


def check_fingerprint(saved: dict[str, Any], now: dict[str, Any], path: Path) -> None:
    """Raises ConfigError naming everything that differs."""
    changed = [name for name in now if saved.get(name) != now[name]]
    if changed:
        raise ConfigError(
            f"{path} cannot be continued, because since then these changed: {', '.join(changed)}; "
            "change them back, or start anew in another output folder"
        )
