"""CTranslate2's model.bin: named arrays in a plain binary file, versions 2 to 6.

    uint32 version, string specification, uint32 revision, uint32 count of variables
    each: string name, uint8 rank, uint32 per dimension, uint8 type, uint32 bytes, data
        up to version 3: uint8 bytes of an item and uint32 count of items in the place of type and bytes
    from version 3: uint32 count of aliases; each: string alias, string name

A string is uint16 length, then as many bytes, the last of which is 0. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tfexport_train.errors import CheckpointError
from tfexport_train.mapped_memory import in_file, let_go, mapped_spans

VERSIONS = range(2, 7)
_TYPES: tuple[str, ...] = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
_TYPE_OF_SIZE = {1: "int8", 2: "int16", 4: "float32"}  # before version 4
_ITEM_BYTES = {"float32": 4, "int8": 1, "int16": 2, "int32": 4, "float16": 2, "bfloat16": 2}
_MOST_VARIABLES = 2**20
_OLD_INT16_SCALE = 1000.0  # of files that hold no scale

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ModelFile:
    """What is in a model.bin, in float32; numbers without an axis are attributes."""

    version: int
    specification: str
    weights: Mapping[str, Tensor]
    attributes: Mapping[str, float]
    flags: frozenset[str]  # attributes in one byte: true or false, or a small number

    def attribute(self, name: str, default: float) -> float:
        return self.attributes.get(name, default)


def read_model_file(path: Path) -> ModelFile:
    """Weights in 16 and 8 bits become float32. Raises CheckpointError."""
    try:
        reader = _Reader(path)
        version = reader.number("I")
        if version not in VERSIONS:
            raise CheckpointError(
                f"{path}: CTranslate2 format version {version}; this version reads {VERSIONS[0]} to {VERSIONS[-1]}"
            )
        specification, _revision = reader.text(), reader.number("I")
        arrays = dict(reader.variable(version) for _ in range(reader.count("variables")))
        aliases = reader.aliases() if version >= 3 else {}
    except (struct.error, UnicodeDecodeError, ValueError, OSError) as error:
        raise CheckpointError(f"{path}: damaged or cut short: {error}") from error
    for alias, name in aliases.items():
        for suffix in ("", "_scale"):  # an alias of a weight is one of its scale as well
            if name + suffix in arrays:
                arrays[alias + suffix] = arrays[name + suffix]
    weights = _dequantised(arrays, aliases, path)
    scalars = {name: pair for name, pair in arrays.items() if pair[0].ndim == 0}
    attributes = {name: float(array.item()) for name, (array, _) in scalars.items()}
    flags = frozenset(name for name, (_, kind) in scalars.items() if kind == "int8")
    return ModelFile(version, specification, weights, attributes, flags)


class _Reader:
    """Reads on in a file that is mapped; nothing that the file says is believed beyond its size."""

    def __init__(self, path: Path) -> None:
        self._data = np.memmap(path, np.uint8, "c")  # private: PyTorch wants memory that could be written to
        self._place = 0

    def bytes(self, count: int) -> Array:
        if count > len(self._data) - self._place:
            raise ValueError(f"{count} bytes are missing at {self._place}")
        self._place += count
        return self._data[self._place - count : self._place]

    def number(self, kind: str) -> int:
        return int(struct.unpack("<" + kind, self.bytes(struct.calcsize(kind)).tobytes())[0])

    def count(self, of: str) -> int:
        count = self.number("I")
        if count > _MOST_VARIABLES:
            raise ValueError(f"{count} {of}")
        return count

    def text(self) -> str:
        return self.bytes(self.number("H")).tobytes().split(b"\0")[0].decode("utf-8")

    def variable(self, version: int) -> tuple[str, tuple[Array, str]]:
        """Name, array and type; bfloat16 comes as int16."""
        name = self.text()
        shape = [self.number("I") for _ in range(self.number("B"))]
        kind = self._type(version)
        size = self.number("I") * (_ITEM_BYTES[kind] if version < 4 else 1)
        expected = _ITEM_BYTES[kind]
        for axis in shape:
            expected *= axis
        if size != expected:
            raise ValueError(f"{name} of {kind} {shape} has {size} bytes")
        data = self.bytes(size).view("int16" if kind == "bfloat16" else kind)
        return name, (data.reshape(shape), kind)

    def _type(self, version: int) -> str:
        number = self.number("B")
        if version < 4:
            if number not in _TYPE_OF_SIZE:
                raise ValueError(f"items of {number} bytes")
            return _TYPE_OF_SIZE[number]
        if number >= len(_TYPES):
            raise ValueError(f"unknown type {number}")
        return _TYPES[number]

    def aliases(self) -> dict[str, str]:
        return {self.text(): self.text() for _ in range(self.count("aliases"))}


def _dequantised(arrays: Mapping[str, tuple[Array, str]], aliases: Mapping[str, str], path: Path) -> dict[str, Tensor]:
    """Float32 tensors of everything that has an axis and is no scale; an alias is the same tensor."""
    weights: dict[str, Tensor] = {}
    for name, (array, kind) in arrays.items():
        if array.ndim == 0 or name.endswith("_scale") or name in aliases:
            continue
        scale = arrays.get(f"{name}_scale")
        found = _float32(array, kind, None if scale is None else scale[0], f"{path}: {name}")
        if not np.shares_memory(found.numpy(), array):
            found = in_file(found)
            let_go(mapped_spans([torch.from_numpy(array.view(np.uint8))]))
        weights[name] = found
    for alias, name in aliases.items():
        if name in weights:
            weights[alias] = weights[name]
    return weights


def _float32(array: Array, kind: str, scale: Array | None, where: str) -> Tensor:
    if kind == "float32":
        # A weight of the file may begin at any byte; PyTorch wants multiples of four.
        return torch.from_numpy(np.require(array, requirements=["A", "C"]))
    if kind == "float16":
        return torch.from_numpy(array.astype(np.float32))
    if kind == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array)).view(torch.bfloat16).float()
    if kind == "int32" or (kind == "int8" and scale is None):
        raise CheckpointError(f"{where} is {kind} without a scale, which is not supported")
    divisor: Array = np.array(_OLD_INT16_SCALE if scale is None else scale, np.float32)
    if divisor.ndim == 1 and len(divisor) != len(array):
        raise CheckpointError(f"{where} has {len(array)} rows and {len(divisor)} scales")
    by_row = divisor.reshape(-1, *[1] * (array.ndim - 1)) if divisor.ndim == 1 else divisor
    return torch.from_numpy(array.astype(np.float32) / by_row)
