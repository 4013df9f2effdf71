"""This project's model in PyTorch, a cached step for each token: text in, text out."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.contenders.bundle import bundle_options
from benchmarks.work import Job, Output, Work
from tfexport_runtime.options import TranslationOptions
from tfexport_train.checkpoint import load_checkpoint
from tfexport_train.evaluate import TorchTranslator


class PyTorchContender:
    def __init__(self, path: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        checkpoint = load_checkpoint(path)
        self.translator = TorchTranslator.from_checkpoint(checkpoint)
        self.defaults = TranslationOptions().with_changes(checkpoint.generation)

    def prepare(self, work: Work) -> Job:
        options, batches = bundle_options(work, self.defaults), work.batches()
        return lambda: [
            Output(t.best.ids, sum(t.best.token_scores))
            for batch in batches
            for t in self.translator.translate(batch, options)
        ]


def load(path: Path, threads: int) -> PyTorchContender:
    return PyTorchContender(path, threads)
