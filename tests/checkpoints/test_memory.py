"""A large checkpoint is mapped, not read, and what has been written of it need not stay in memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import pytest
import torch

from tests.checkpoints.tutorial_classes import AnnotatedEncoderDecoder, positional_encoding
from tfexport_train.mapped_memory import in_file, let_go, mapped_spans

_IMPORT = """
import sys
import tempfile
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
def test_import_takes_less_memory_than_the_file_is_long(tmp_path: Path) -> None:
    with torch.device("meta"):
        shapes = AnnotatedEncoderDecoder(10_000, 10_000, d=1024, d_ff=32).state_dict()
    weights = {name: torch.zeros(tensor.shape) for name, tensor in shapes.items()}
    for side in ("src", "tgt"):
        weights[f"{side}_embed.1.pe"] = positional_encoding(60, 1024)[None]
        weights[f"{side}_embed.0.lut.weight"][0, 0] = 1.0 if side == "src" else 2.0  # so that nothing is tied
    with open(tmp_path / "large.pt", "wb") as file:
        torch.save({"model": weights}, SparseFile(file))
        file.truncate()
    size = (tmp_path / "large.pt").stat().st_size
    assert size > 150e6
    assert (tmp_path / "large.pt").stat().st_blocks * 512 < size / 4
    command = [sys.executable, "-c", _IMPORT, str(tmp_path / "large.pt")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=200)
    # A file that lies in memory itself stays there.
    assert int(done.stdout) < (1.5 if on_tmpfs(tmp_path) else 0.6) * size


def on_tmpfs(path: Path) -> bool:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [(place, kind) for place, kind in mounts if path.is_relative_to(place)]
    return max(inside, key=lambda mount: len(mount[0]))[1] == "tmpfs"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell what is mapped")
def test_letting_go_of_mapped_weights_loses_nothing(tmp_path: Path) -> None:
    torch.save({"a": torch.arange(50_000.0), "b": torch.ones(50_000)}, tmp_path / "w.pt")
    weights = torch.load(tmp_path / "w.pt", weights_only=True, mmap=True)
    weights["b"][7] = 5.0  # in memory alone
    spans = mapped_spans([*weights.values(), torch.ones(50_000)])
    assert len(spans) == 2
    assert all(length > 40_000 * 4 for _, length in spans)
    let_go(spans)
    assert torch.equal(weights["a"], torch.arange(50_000.0))
    assert weights["b"].sum() == 50_004


def test_short_tensors_and_those_in_memory_are_nothing_to_let_go_of(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(3)}, tmp_path / "w.pt")
    weights = torch.load(tmp_path / "w.pt", weights_only=True, mmap=True)
    assert mapped_spans([weights["a"], torch.ones(50_000), torch.empty(0)]) == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere weights stay in memory")
def test_computed_weights_lie_in_a_file_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    half, more = torch.randn(700, 500).half(), torch.randn(40, 500)
    joined = in_file(half, more)
    assert torch.equal(joined, torch.cat([half.float(), more]))
    assert len(mapped_spans([joined])) == 1
    assert torch.equal(in_file(half.T), half.T.float())
    assert in_file(half.T).is_contiguous()
    assert not list(tmp_path.iterdir())
    let_go(mapped_spans([joined]))
    assert torch.equal(joined[:700], half.float())


def test_where_no_file_can_be_written_weights_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    weights = torch.randn(700, 500).half()
    assert torch.equal(in_file(weights), weights.float())
    assert mapped_spans([in_file(weights)]) == []
