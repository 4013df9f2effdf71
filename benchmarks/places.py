"""Where things lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "run" / "bench"  # checkpoints, bundles and the peers' models, made once
PEERS = ROOT / ".venv-peers" / "bin" / "python"  # `make bench-peers`
RESULTS = ROOT / "benchmarks" / "results"
BASE_CONFIG = ROOT / "train" / "configs" / "base.yaml"
SOURCES = (ROOT, ROOT / "train", ROOT / "runtime" / "python")  # for an interpreter that has not installed this project
CPP_PROGRAM = ROOT / "runtime" / "cpp" / "build" / "main" / "tfexport-cli"  # `make cpp`
