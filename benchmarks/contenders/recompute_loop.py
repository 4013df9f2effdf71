"""The tutorials' loop: greedy, one sentence, the decoder over the whole prefix for each token. Ids in, ids out."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.errors import BenchmarkError
from benchmarks.work import Job, Output, Work
from tfexport.recompute import recompute_greedy
from tfexport_train.checkpoint import load_checkpoint


class RecomputeContender:
    def __init__(self, path: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        checkpoint = load_checkpoint(path)
        config, source = checkpoint.config, checkpoint.source
        self.model = checkpoint.build_model()
        self.tokenizer = source.tokenizer(config.unk_id)
        self.before, self.after = (config.start_id,) * source.add_bos, (config.eos_id,) * source.add_eos

    def prepare(self, work: Work) -> Job:
        if work.tokens is None or work.beam_size > 1:
            raise BenchmarkError("the recomputing loop is greedy and needs a forced length")
        tokens = work.tokens
        sources = [(*self.before, *self.tokenizer.encode(text), *self.after) for text in work.texts]
        return lambda: [Output(tuple(recompute_greedy(self.model, source, tokens)), None) for source in sources]


def load(path: Path, threads: int) -> RecomputeContender:
    return RecomputeContender(path, threads)
