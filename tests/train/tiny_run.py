"""A training run of a few seconds, and what stands around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tfexport_train.progress import StepReport
from tfexport_train.settings import TrainSettings, settings_from_dict

WORDS = {"red": "rot", "blue": "blau", "green": "gruen", "dog": "hund", "cat": "katze", "cow": "kuh", "sees": "sieht"}


def tiny_settings(folder: Path, **training: Any) -> TrainSettings:
    """Word order of three words, 69 pairs; dropout on, a warm-up that ends at step 12."""
    if not (folder / "train.tsv").exists():
        _write_text(folder)
    return settings_from_dict(
        {
            "output": "run",
            "data": {"train": "train.tsv", "valid": "valid.tsv"},
            "tokenizer": {"model_type": "word", "vocab_size": 40, "shared": False},
            "model": {
                "preset": "modern-base",
                "changes": {
                    "d_model": 16,
                    "num_heads": 2,
                    "num_encoder_layers": 1,
                    "num_decoder_layers": 1,
                    "d_ff": 32,
                    "max_positions": 16,
                    "dropout": 0.3,
                },
            },
            "training": {
                "max_tokens": 80,
                "max_steps": 20,
                "warmup": 12,
                "lr": 0.01,
                "validate_every": 7,
                "keep_last": 2,
                "log_every": 5,
                "metrics": ["exact_match"],
                "metric_sentences": 3,
                **training,
            },
        },
        folder,
    )


def _write_text(folder: Path) -> None:
    names = list(WORDS)
    sentences = [f"{a} {b} sees {c} {d}" for a in names[:3] for b in names[3:6] for c in names[:3] for d in names[3:6]]
    pairs = [f"{s}\t{' '.join(WORDS[w] for w in s.split())}\n" for s in sentences]
    (folder / "train.tsv").write_text("".join(pair for i, pair in enumerate(pairs) if i % 7))
    (folder / "valid.tsv").write_text("".join(pairs[::7]))


class Recorder:
    """A report that keeps everything, and can act at a step."""

    def __init__(self, at_step: int | None = None, action: Any = None) -> None:
        self.messages: list[str] = []
        self.steps: list[StepReport] = []
        self._at_step, self._action = at_step, action

    def message(self, text: str) -> None:
        self.messages.append(text)

    def step(self, report: StepReport) -> None:
        self.steps.append(report)
        if report.step == self._at_step:
            self._action()

    def close(self) -> None:
        self.messages.append("closed")
