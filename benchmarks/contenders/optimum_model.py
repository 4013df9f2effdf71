"""Optimum's ONNX Runtime model, float32, with its merged decoder."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import torch
from optimum.onnxruntime import ORTModelForSeq2SeqLM

from benchmarks.contenders.generating import GeneratingContender
from tfexport_train.checkpoint import load_checkpoint


def load(path: Path, threads: int) -> GeneratingContender:
    torch.set_num_threads(threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    model = ORTModelForSeq2SeqLM.from_pretrained(path / "model", session_options=options, use_cache=True)
    return GeneratingContender(model, load_checkpoint(path / "ckpt.pt"))
