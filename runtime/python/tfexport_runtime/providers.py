"""Where graphs can run, and what ONNX Runtime calls it."""

from __future__ import annotations

from typing import Literal

DeviceName = Literal["cpu", "cuda"]
PROVIDERS: dict[DeviceName, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
