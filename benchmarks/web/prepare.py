"""The other half of what compare.mjs runs: a Marian model in the layout of transformers.js, and what is translated.

`python benchmarks/web/prepare.py OPTIMUM_FOLDER MATERIALS`, with what `optimum-cli export onnx` wrote.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path

from onnxruntime.quantization import QuantType, quantize_dynamic

GRAPHS = ("encoder_model", "decoder_model_merged")
SOURCE_LENGTHS = (8, 11, 14, 18)  # tokens, without the end token


def main(optimum: Path, materials: Path) -> None:
    write_model(optimum, materials / "models" / "marian")
    config = json.loads((optimum / "config.json").read_text(encoding="utf-8"))
    generator = random.Random(1)
    ids = range(10, config["vocab_size"] - 100)  # none of the special ones at both ends
    sources = [generator.choices(ids, k=length) for length in SOURCE_LENGTHS]
    texts = {"eos": config["eos_token_id"], "sources": sources}
    (materials / "texts.json").write_text(json.dumps(texts) + "\n", encoding="utf-8")


def write_model(optimum: Path, output: Path) -> None:
    """Its 8-bit form is made as the scripts of transformers.js do for `q8`."""
    (output / "onnx").mkdir(parents=True, exist_ok=True)
    for settings in optimum.glob("*.json"):
        shutil.copy(settings, output)
    for graph in GRAPHS:
        target = output / "onnx" / f"{graph}.onnx"
        shutil.copy(optimum / target.name, target)
        quantize_dynamic(
            target,
            target.with_name(f"{graph}_quantized.onnx"),
            weight_type=QuantType.QInt8,
            extra_options={"EnableSubgraph": True, "MatMulConstBOnly": True},
        )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
