"""The weights behind both graphs: every distinct tensor once, in one file, or in several where one is too large."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx_ir as ir

ALIGNMENT = 64  # bytes, so that a file can be mapped
INLINE_BELOW = 1024  # bytes; small constants stay in the graph, where shape inference needs them
MAX_SHARD_BYTES = 2_000_000_000  # 2 GB, below the 2 GiB that some file systems, hosts and WebAssembly end at


@dataclass(frozen=True)
class _Place:
    """Where a tensor goes."""

    shard: int
    offset: int  # bytes


def write_shared_weights(models: Sequence[ir.Model], folder: Path, max_shard_bytes: int = MAX_SHARD_BYTES) -> list[str]:
    """Moves the large initializers of all models into files of the folder and points them there.

    Returns the names: `weights.bin`, or `weights-00001-of-00003.bin` and so on. No file is larger than
    `max_shard_bytes`, unless a single tensor is: ONNX cannot split one, and it then has a file to itself.
    """
    values = [value for model in models for value in _large(model)]
    keys = [_content(value) for value in values]
    places = _plan({key: _size(value) for key, value in zip(keys, values, strict=True)}, max_shard_bytes)
    count = 1 + max((place.shard for place in places.values()), default=0)
    names = [f"weights-{i + 1:05}-of-{count:05}.bin" if count > 1 else "weights.bin" for i in range(count)]
    unwritten = dict(places)
    for i, name in enumerate(names):
        with open(folder / name, "wb") as file:
            for key, value in zip(keys, values, strict=True):
                if places[key].shard == i:
                    if unwritten.pop(key, None) is not None:
                        _write(file, places[key].offset, value)
                    _point(value, folder, name, places[key].offset)
    return names


def _large(model: ir.Model) -> Iterator[ir.Value]:
    for value in model.graph.initializers.values():
        if value.const_value is not None and value.const_value.nbytes >= INLINE_BELOW:
            yield value


def _plan(sizes: dict[bytes, int], limit: int) -> dict[bytes, _Place]:
    """In the order given: a tensor that does not fit behind the one before begins the next file."""
    places: dict[bytes, _Place] = {}
    shard = end = 0
    for key, size in sizes.items():
        offset = end + -end % ALIGNMENT
        if end and offset + size > limit:
            shard, offset = shard + 1, 0
        places[key] = _Place(shard, offset)
        end = offset + size
    return places


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    assert value.const_value is not None
    return value.const_value


def _size(value: ir.Value) -> int:
    return _tensor(value).nbytes


def _content(value: ir.Value) -> bytes:
    """What is read in two shapes is stored once, too."""
    return hashlib.sha256(np.ascontiguousarray(_tensor(value).numpy()).data).digest()


def _write(file: BinaryIO, offset: int, value: ir.Value) -> None:
    file.write(b"\0" * (offset - file.tell()))
    array = np.ascontiguousarray(_tensor(value).numpy())
    # Where a value takes whole bytes the array's own memory is written, without a copy.
    file.write(array.data if array.nbytes == _size(value) else _tensor(value).tobytes())


def _point(value: ir.Value, folder: Path, name: str, offset: int) -> None:
    """The tensor's memory can go as soon as nothing else holds it."""
    tensor = _tensor(value)
    assert isinstance(tensor.shape, ir.Shape)
    value.const_value = ir.ExternalTensor(
        name,
        offset,
        tensor.nbytes,
        tensor.dtype,
        shape=tensor.shape,
        name=value.name or "",
        base_dir=folder,
    )
