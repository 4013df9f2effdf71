"""The mean of several checkpoints of one run (section 6.1 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from tfexport_train.checkpoint import Checkpoint, load_checkpoint
from tfexport_train.errors import CheckpointError


def average_checkpoints(paths: Sequence[Path]) -> Checkpoint:
    """The mean of their weights, summed in float64; all else is the last one's. Raises CheckpointError."""
    if not paths:
        raise CheckpointError("there is no checkpoint to average")
    sums: dict[str, torch.Tensor] = {}
    for path in paths:
        checkpoint = load_checkpoint(path)
        if sums and {n: w.shape for n, w in checkpoint.weights.items()} != {n: s.shape for n, s in sums.items()}:
            raise CheckpointError(f"{path}: holds other weights than {paths[0]}; only one run's can be averaged")
        for name, weight in checkpoint.weights.items():
            sums[name] = weight.double() + sums.get(name, 0.0)
    weights = {name: (total / len(paths)).to(checkpoint.weights[name].dtype) for name, total in sums.items()}
    return replace(checkpoint, weights=weights)
