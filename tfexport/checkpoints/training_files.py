"""Checkpoints that trainers of toolkits wrote: weights beside settings and other objects, none of which runs here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tfexport_train.checkpoint import load_untrusted
from tfexport_train.errors import CheckpointError


class Unread:
    """Stands for an object of a toolkit that nothing is needed of: it takes whatever it is given, and does nothing."""

    def __init__(self, *_values: object) -> None:
        pass

    def __setstate__(self, _state: object) -> None:
        pass


_SCALAR: Any = getattr(np, "_core", np).multiarray.scalar
_METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter")
CLASSES: tuple[Any, ...] = (
    argparse.Namespace,
    # The best score so far is often a number of NumPy, under the name that it had when the file was written.
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (_SCALAR, "numpy._core.multiarray.scalar"),
    np.dtype,
    *{type(np.dtype(kind)) for kind in ("float64", "float32", "int64")},
    *((Unread, f"fairseq.{module}.{name}") for module in ("meters", "logging.meters") for name in _METERS),
)
"""What may lie in such a file: values, and objects that become Unread."""


def load_training_file(path: Path, allowed: Sequence[Any]) -> Any:
    """The content, mapped from the file; None for what is no PyTorch file, or holds other objects."""
    if not path.is_file() or path.suffix in (".safetensors", ".npz"):
        return None
    status = path.stat()
    return _loaded(path, tuple(allowed), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)
def _loaded(path: Path, allowed: tuple[Any, ...], changed: int, size: int) -> Any:
    """Each format of a toolkit looks into the file before one of them reads it."""
    try:
        return load_untrusted(path, allowed, mapped=True)
    except CheckpointError:
        return None
