"""CKPT OUTPUT: what Optimum's exporter makes of it, encoder and merged decoder."""

from __future__ import annotations

import sys
from pathlib import Path

from optimum.exporters.onnx.convert import onnx_export_from_model

from benchmarks.convert.transformers_model import transformers_model
from tfexport_train.checkpoint import load_checkpoint

KEPT = ("encoder_model.onnx", "decoder_model_merged.onnx", "config.json", "generation_config.json")


def convert(checkpoint: Path, output: Path) -> None:
    folder = output / "model"
    model = transformers_model(load_checkpoint(checkpoint))
    onnx_export_from_model(model, folder, task="text2text-generation-with-past", do_validation=False)
    for file in folder.iterdir():  # the decoders that the merged one replaces
        if file.name not in KEPT and not file.name.endswith("_data"):
            file.unlink()
    (output / "ckpt.pt").symlink_to(checkpoint.resolve())


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
