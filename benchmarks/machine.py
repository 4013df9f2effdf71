"""What the figures belong to: processor, versions, settings."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

OURS = ("tfexport", "numpy", "onnxruntime", "torch", "sentencepiece")
THEIRS = ("ctranslate2", "optimum-onnx", "onnxruntime", "transformers", "torch", "slimt")
_ASK = """
import importlib.metadata as m, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def describe_machine(ours: Path, peers: Path) -> dict[str, Any]:
    flags = _cpuinfo("flags").split()
    return {
        "processor": _cpuinfo("model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "instructions": [f for f in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8") if f in flags],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": _versions(ours, OURS),
        "versions of the peers": _versions(peers, THEIRS) if peers.exists() else {},
    }


def _versions(python: Path, names: tuple[str, ...]) -> dict[str, str]:
    done = subprocess.run([str(python), "-c", _ASK, *names], capture_output=True, encoding="utf-8", check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _cpuinfo(key: str) -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith(key)), "")
    except OSError:
        return ""
