"""Generates with Optimum's ONNX Runtime model, in an environment that has it and needs nothing of this project.

    python generate_with_optimum.py RESULT FOLDER...    # each FOLDER with the expected.json of its original in it

Writes to RESULT, for each folder, the ids of greedy search and of four beams, as `generate` gives them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from optimum.onnxruntime import ORTModelForSeq2SeqLM


def main() -> None:
    torch.set_num_threads(1)
    found = {folder: _generated(Path(folder)) for folder in sys.argv[2:]}
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")


def _generated(folder: Path) -> dict[str, Any]:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    model = ORTModelForSeq2SeqLM.from_pretrained(folder, subfolder="onnx", use_cache=True, use_merged=True)
    model.generation_config.forced_eos_token_id = None
    sources, pad = expected["source_ids"], model.config.pad_token_id
    width = max(map(len, sources))
    batch = {
        "input_ids": torch.tensor([[*s, *[pad] * (width - len(s))] for s in sources]),
        "attention_mask": torch.tensor([[int(i < len(s)) for i in range(width)] for s in sources]),
    }
    return {
        search: model.generate(**batch, **expected["generate"], **expected["generate_" + search]).tolist()
        for search in ("greedy", "beam")
    }


if __name__ == "__main__":
    main()
