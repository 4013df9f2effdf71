"""One file of weights behind both graphs: every distinct tensor once, aligned so that it can be mapped."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

ALIGNMENT = 64  # bytes
INLINE_BELOW = 1024  # bytes; small constants stay in the graph, where shape inference needs them


def write_shared_weights(models: Sequence[ir.Model], path: Path) -> int:
    """Moves the large initializers of all models into `path` and points them there. Returns the bytes written."""
    places: dict[bytes, int] = {}  # by content: what is read in two shapes is stored once, too
    with open(path, "wb") as file:
        for model in models:
            for value in model.graph.initializers.values():
                tensor = value.const_value
                if tensor is None or tensor.nbytes < INLINE_BELOW:
                    continue
                content = np.ascontiguousarray(tensor.numpy())
                key = hashlib.sha256(content.data).digest()
                if key not in places:
                    file.write(b"\0" * (-file.tell() % ALIGNMENT))
                    places[key] = file.tell()
                    file.write(tensor.tobytes())
                value.const_value = ir.ExternalTensor(
                    path.name,
                    places[key],
                    tensor.nbytes,
                    tensor.dtype,
                    shape=ir.Shape(content.shape),
                    name=value.name or "",
                    base_dir=path.parent,
                )
        return file.tell()
