"""A large checkpoint is mapped, not read: importing it takes little more memory than the file is long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
import torch

from tests.checkpoints.tutorial_classes import AnnotatedEncoderDecoder, positional_encoding

_IMPORT = """
import sys
from pathlib import Path
import torch
from tfexport.checkpoints import ImportOptions, open_checkpoint
from tfexport_train.checkpoint import save_checkpoint

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

before = peak()
facts = {"num_heads": 4, "pad_id": 0, "start_id": 1, "eos_id": 2, "unk_id": 3}
found = open_checkpoint(Path(sys.argv[1]), ImportOptions(config=facts, ids=True))
save_checkpoint(found.checkpoint, Path("/dev/null"))
print(peak() - before)
"""


class SparseFile:
    """Leaves holes in the file where zeros are written."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, data: bytes) -> int:
        zeros = bytes(2**20)
        for start in range(0, len(data), len(zeros)):
            block = data[start : start + len(zeros)]
            self.file.seek(len(block), 1) if block == zeros else self.file.write(block)
        return len(data)

    def flush(self) -> None:
        self.file.flush()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_import_takes_less_than_one_and_a_half_times_the_file(tmp_path: Path) -> None:
    with torch.device("meta"):
        shapes = AnnotatedEncoderDecoder(20_000, 20_000, d=1024, d_ff=32).state_dict()
    weights = {name: torch.zeros(tensor.shape) for name, tensor in shapes.items()}
    for side in ("src", "tgt"):
        weights[f"{side}_embed.1.pe"] = positional_encoding(60, 1024)[None]
        weights[f"{side}_embed.0.lut.weight"][0, 0] = 1.0 if side == "src" else 2.0  # so that nothing is tied
    with open(tmp_path / "large.pt", "wb") as file:
        torch.save({"model": weights}, SparseFile(file))
        file.truncate()
    size = (tmp_path / "large.pt").stat().st_size
    assert size > 300e6
    assert (tmp_path / "large.pt").stat().st_blocks * 512 < size / 4
    command = [sys.executable, "-c", _IMPORT, str(tmp_path / "large.pt")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=200)
    assert int(done.stdout) < 1.5 * size
