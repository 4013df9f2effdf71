"""Memory of a processor or a GPU that holds keys and values, and how they move inside it.

Letters: L layers, N rows or sentences, H heads, T positions, D head size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tfexport_runtime.errors import UnavailableError
from tfexport_runtime.gather_graph import gather_graph
from tfexport_runtime.graph_pair import Graph
from tfexport_runtime.providers import PROVIDERS, DeviceName
from tfexport_runtime.step_model import IntArray

Shape = tuple[int, int, int, int, int]  # [2L, N, H, T, D]


class DeviceGraph(Graph, Protocol):
    """What a session of ONNX Runtime offers beside `run`."""

    def get_inputs(self) -> Sequence[Any]:
        """Their names among it."""

    def get_input_memory_infos(self) -> Sequence[Any]:
        """Where each is read, in the same order."""

    def io_binding(self) -> Any:
        """Binds inputs and outputs to memory."""

    def run_with_iobinding(self, binding: Any, /) -> None:
        """Returns when all outputs are written."""


@dataclass
class Block:
    """Keys and values by turns of all layers, [2L, N, H, T, D], in one piece of memory.

    A layer begins where a row may begin: it is aligned as every row is.
    """

    shape: Shape
    dtype: np.dtype[Any]
    device: DeviceName
    value: Any  # an OrtValue, which owns the memory
    bound: Any = field(default=None, repr=False)  # what the model keeps while this memory is in use

    def bind_input(self, binding: Any, name: str, index: int) -> None:
        """To the input `name`: keys or values [N, H, T, D] of a layer."""
        binding.bind_input(name, self.device, 0, self.dtype.type, self.shape[1:], self._address(index))

    def bind_output(self, binding: Any, name: str, index: int) -> None:
        """As bind_input, but written to."""
        binding.bind_output(name, self.device, 0, self.dtype.type, self.shape[1:], self._address(index))

    def _address(self, index: int) -> int:
        return int(self.value.data_ptr()) + index * math.prod(self.shape[1:]) * self.dtype.itemsize


class Device:
    """Where blocks of one element type and head size are made and copied; what is in them never leaves it."""

    def __init__(self, name: DeviceName, dtype: np.dtype[Any], head_sizes: Sequence[int]) -> None:
        """head_sizes: all D that blocks will have."""
        import onnxruntime

        self.name, self.dtype = name, dtype
        # The larger the words, the fewer of them a kernel has to move one by one.
        word = next(w for w in (8, 4, 2, 1) if all(size * dtype.itemsize % w == 0 for size in head_sizes))
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.log_severity_level = 1, 3
        self._word = np.dtype(f"i{word}").type
        self._session = onnxruntime.InferenceSession(gather_graph(word), settings, providers=[PROVIDERS[name]])

    def block(self, shape: Shape) -> Block:
        """What it holds is of no account."""
        import onnxruntime

        room = [max(1, math.prod(shape))]  # an empty one has an address too
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(room, self.dtype.type, self.name, 0)
        return Block(shape, self.dtype, self.name, value)

    def zeros(self, shape: Shape) -> Block:
        """Made of one row of zeros, so that not all of them have to come from the host."""
        import onnxruntime

        row = (shape[0], 1, *shape[2:])
        zeros = np.zeros(max(1, math.prod(row)), self.dtype)
        value = onnxruntime.OrtValue.ortvalue_from_numpy(zeros, self.name, 0)
        return self.rows(Block(row, self.dtype, self.name, value), np.zeros(shape[1], np.int64))

    def rows(self, source: Block, rows: IntArray, target: Block | None = None) -> Block:
        """source[:, rows], written into `target` where it has that shape, else into new memory."""
        shape = (source.shape[0], len(rows), *source.shape[2:])
        if target is None or target.shape != shape:
            target = self.block(shape)
        self._gather(source, rows, target, 1)
        return target

    def longer(self, source: Block, length: int) -> Block:
        """`length` positions a row; behind the last one of `source` that is repeated."""
        target = self.block((*source.shape[:3], length, source.shape[4]))
        positions = np.minimum(np.arange(length), source.shape[3] - 1)
        self._gather(source, positions, target, 3)
        return target

    def _gather(self, source: Block, indices: IntArray, target: Block, axis: int) -> None:
        """target = source taken at `indices` of an axis."""
        binding = self._session.io_binding()
        binding.bind_input("data", self.name, 0, self._word, *self._words(source, axis))
        binding.bind_cpu_input("indices", indices)
        binding.bind_output("gathered", self.name, 0, self._word, *self._words(target, axis))
        self._session.run_with_iobinding(binding)

    def _words(self, block: Block, axis: int) -> tuple[tuple[int, int, int], int]:
        """As the graph sees it: shape [A, N, W], address."""
        before, count, behind = block.shape[:axis], block.shape[axis], block.shape[axis + 1 :]
        size = math.prod(behind) * self.dtype.itemsize // np.dtype(self._word).itemsize
        return (math.prod(before), count, size), block.value.data_ptr()


def cache_device(decoder: DeviceGraph, caches: Sequence[str], wanted: DeviceName) -> DeviceName:
    """Where the graph reads these inputs: on the `wanted` device, or on the host, which computes what that cannot.

    What is changed in place must lie there: of other memory, a copy is bound.
    Raises UnavailableError if it reads some here and some there.
    """
    names = [tensor.name for tensor in decoder.get_inputs()]
    places = dict(zip(names, (info.name for info in decoder.get_input_memory_infos()), strict=True))
    on_host = {places[name].lower() == "cpu" for name in caches}
    if len(on_host) > 1:
        raise UnavailableError(f"only some layers of this bundle run on {wanted} here; choose --provider cpu")
    return "cpu" if on_host.pop() else wanted
