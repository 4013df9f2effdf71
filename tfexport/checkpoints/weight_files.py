"""Reads the weights of a foreign file without running code from it, and without reading what is not used."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from torch import Tensor

from tfexport.checkpoints.imported import Shape
from tfexport_train.checkpoint import load_untrusted
from tfexport_train.errors import CheckpointError

NAMESPACES: tuple[Any, ...] = (argparse.Namespace,)
"""Settings of known toolkits lie beside their weights in this class; it holds values and runs nothing."""

T = TypeVar("T")

_CONTAINERS = ("state_dict", "model_state_dict", "model", "module", "net", "weights", "params")
_PREFIXES = ("module.", "_orig_mod.", "model.")
_DEEPEST = 4


def read_weights(path: Path, allowed: Sequence[Any] = NAMESPACES) -> dict[str, Tensor]:
    """The state_dict of a PyTorch or safetensors file, whatever it is nested in, without common prefixes.

    Tensors stay mapped from the file where its kind allows it. Raises CheckpointError.
    """
    if path.suffix == ".safetensors":
        return without_prefixes(read_safetensors(path))
    tensors = unwrapped(load_untrusted(path, allowed, mapped=True))
    if tensors is None:
        raise CheckpointError(f"{path}: holds no state_dict, that is, no names with tensors")
    return without_prefixes(tensors)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Mapped. Raises CheckpointError."""
    import safetensors
    import safetensors.torch

    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        return safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path}: damaged or not a safetensors file: {str(error).splitlines()[0]}") from error


def shapes_or_none(path: Path) -> Mapping[str, Shape] | None:
    """What read_weights would give, for recognising a format: None for what cannot be read."""
    if not path.is_file():
        return None
    status = path.stat()
    return _shapes(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _shapes(path: Path, changed: int, size: int) -> Mapping[str, Shape] | None:
    """Every format looks at the names; an old file without an index is then read once and not once for each."""
    try:
        return MappingProxyType(shapes_of(read_weights(path)))
    except CheckpointError:
        return None


def unwrapped(content: object) -> dict[str, Tensor] | None:
    """The innermost mapping from names to tensors, entered by the usual keys; other values beside them are left out."""
    for _ in range(_DEEPEST):
        if not isinstance(content, Mapping):
            return None
        tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
        inner = next((content[key] for key in _CONTAINERS if isinstance(content.get(key), Mapping)), None)
        if inner is None or len(tensors) > 1:
            return tensors or None
        content = inner
    return None


def without_prefixes(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without what DistributedDataParallel, torch.compile and wrappers put before every name."""
    result = dict(tensors)
    while result and (prefix := next((p for p in _PREFIXES if all(name.startswith(p) for name in result)), None)):
        result = {name.removeprefix(prefix): tensor for name, tensor in result.items()}
    return result


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def below(tensors: Mapping[str, T], mark: str) -> dict[str, T] | None:
    """With the prefix taken off that stands before `mark`; names without it stay. None where `mark` is nowhere."""
    found = [name for name in tensors if name == mark or name.endswith("." + mark)]
    if not found:
        return None
    prefix = min(found, key=len).removesuffix(mark)
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
