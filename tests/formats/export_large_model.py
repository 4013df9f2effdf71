"""Exports a model whose weights take more than 2 GB, nearly all of them zeros, and prints what it took as JSON.

`python export_large_model.py BUNDLE [precision]`
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import torch

from tfexport.export import ExportOptions, export_bundle
from tfexport_train.checkpoint import Checkpoint, TextSide
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.model import EncoderDecoder

SOURCE, TARGET, WIDTH = 48_000, 20_000, 8192  # two tables of 1.6 and 0.7 GB in float32
USED = 64  # rows of a table that are not zero


def large_checkpoint() -> Checkpoint:
    config = EncoderDecoderConfig(
        SOURCE,
        TARGET,
        d_model=WIDTH,
        num_heads=2,
        head_dim=8,
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_ff=16,
        max_positions=8,
        share_embeddings=False,
    )
    torch.manual_seed(1)
    weights = EncoderDecoder(config).state_dict()
    for tensor in weights.values():
        if tensor.shape[0] >= TARGET:
            tensor[USED:] = 0
    return Checkpoint(config, weights, words(config, SOURCE), words(config, TARGET))


def words(config: EncoderDecoderConfig, count: int) -> TextSide:
    names = {config.pad_id: "<pad>", config.start_id: "<s>", config.eos_id: "</s>", config.unk_id: "<unk>"}
    return TextSide("words", "".join(f"{names.get(i, f'w{i}')}\n" for i in range(count)).encode())


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    started, checkpoint = time.monotonic(), large_checkpoint()
    before = peak()
    stages: list[tuple[str, float, int]] = []

    def progress(stage: str) -> None:
        stages.append((stage, round(time.monotonic() - started, 1), peak()))

    options = ExportOptions(precision=sys.argv[2] if len(sys.argv) > 2 else "fp32")  # type: ignore[arg-type]
    report = export_bundle(checkpoint, Path(sys.argv[1]), options, progress)
    progress("done")
    found = {"passed": report.parity.passed, "before": before, "peak_bytes": peak(), "stages": stages}
    sys.stdout.write(json.dumps(found) + "\n")
