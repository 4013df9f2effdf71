"""`transformers` in PyTorch, eager, with its cache."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.contenders.generating import GeneratingContender
from benchmarks.convert.transformers_model import transformers_model
from tfexport_train.checkpoint import load_checkpoint


def load(path: Path, threads: int) -> GeneratingContender:
    torch.set_num_threads(threads)
    checkpoint = load_checkpoint(path)
    return GeneratingContender(transformers_model(checkpoint), checkpoint)
