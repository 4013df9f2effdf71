"""Decoding on a device: keys and values stay in its memory; tokens go in, and candidates or logits come out.

Letters: B sentences, K beams, R = B*K rows, S source length, P used length, C capacity, H heads, D head size, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tfexport_runtime.cache import FIRST_CAPACITY, Array, in_order
from tfexport_runtime.device import Block, Device, DeviceGraph, Shape, cache_device
from tfexport_runtime.graph_pair import GraphPair, cache_head, padded
from tfexport_runtime.manifest import Manifest
from tfexport_runtime.providers import DeviceName
from tfexport_runtime.step_model import Candidates, FloatArray, IntArray


@dataclass(frozen=True)
class DeviceMemory:
    """What the encoder left for the decoder, once per sentence."""

    device: Device
    cross: Block  # [2L, B, H, S, D]
    mask: npt.NDArray[np.int32]  # [B, S], on the host; 1 on real tokens

    def select(self, sentences: IntArray) -> DeviceMemory:
        """Only these sentences, in this order."""
        if in_order(sentences, len(self.mask)):
            return self
        return DeviceMemory(self.device, self.device.rows(self.cross, sentences), self.mask[sentences])


@dataclass(frozen=True)
class DeviceCache:
    """Rows lie in their order: on a device it costs little to copy all of them whenever beams change places."""

    memory: DeviceMemory
    block: Block  # [2L, R, H, C, D], or [2L, R, H, P, D] of a growing one
    lengths: npt.NDArray[np.int32]  # [R] used length, on the host
    spare: Block | None = None  # for the next change of places, if no row leaves

    @classmethod
    def empty(cls, memory: DeviceMemory, shape: Shape) -> DeviceCache:
        """shape: of the block; P = 0."""
        return cls(memory, memory.device.zeros(shape), np.zeros(shape[1], np.int32))

    def with_room(self, limit: int) -> DeviceCache:
        """This cache if one more token fits, else one of twice the capacity, at most `limit`."""
        capacity = self.block.shape[3]
        if int(self.lengths.max()) < capacity:
            return self
        longer = self.memory.device.longer(self.block, min(2 * capacity, limit))
        return DeviceCache(self.memory, longer, self.lengths)

    def select(self, rows: IntArray) -> DeviceCache:
        """Both blocks take turns, so that each stays bound."""
        if in_order(rows, len(self.lengths)):
            return self
        beams = len(self.lengths) // len(self.memory.mask)
        memory = self.memory.select(rows[::beams] // beams)
        block = memory.device.rows(self.block, rows, self.spare)
        return DeviceCache(memory, block, self.lengths[rows], self.block)


class DeviceModel(GraphPair):
    """Both forms of the cache, in place and growing, in the memory of the device that reads it."""

    def __init__(self, manifest: Manifest, encoder: DeviceGraph, decoder: DeviceGraph, device: DeviceName) -> None:
        """device: where the sessions run. Raises UnavailableError where it computes only some layers."""
        super().__init__(manifest, encoder, decoder)
        self._sessions = encoder, decoder
        self._in_place = manifest.cache.form == "in_place"
        self._cross_head = cache_head(manifest, "encoder")
        caches = [name.format("past_key_values") for name in self._self_names]
        kinds = {tensor.name: tensor.type for tensor in manifest.graphs["decoder"].inputs}
        head_sizes = self._cache_head[1], self._cross_head[1]
        self._device = Device(cache_device(decoder, caches, device), np.dtype(kinds[caches[0]]), head_sizes)
        self._no_bias = np.zeros(self._shape.target_vocab_size, np.float32)

    def start(self, sources: Sequence[Sequence[int]], beam_size: int) -> DeviceCache:
        length = min(FIRST_CAPACITY, self._shape.max_target_length) if self._in_place else 0
        heads, size = self._cache_head
        shape = (len(self._self_names), len(sources) * beam_size, heads, length, size)
        return DeviceCache.empty(self._remember(sources), shape)

    def step(
        self, tokens: IntArray, cache: DeviceCache, bias: FloatArray, count: int
    ) -> tuple[Candidates, DeviceCache]:
        (scores, ids), cache = self._run(("candidate_scores", "candidate_ids"), tokens, cache, bias, count)
        return Candidates(scores, ids), cache

    def step_logits(self, tokens: IntArray, cache: DeviceCache) -> tuple[FloatArray, DeviceCache]:
        (logits,), cache = self._run(("logits",), tokens, cache, self._no_bias, 1)
        return logits, cache

    def step_attention(self, tokens: IntArray, cache: DeviceCache) -> tuple[list[FloatArray], DeviceCache]:
        return self._run(self.attention_names, tokens, cache, self._no_bias, 1)

    def _remember(self, sources: Sequence[Sequence[int]]) -> DeviceMemory:
        """Pads B sources to the longest and runs the encoder graph, which writes where the decoder will read."""
        session = self._sessions[0]
        ids, mask = padded(sources, self._pad_id)
        heads, size = self._cross_head
        block = self._device.block((len(self._cross_names), len(ids), heads, ids.shape[1], size))
        binding = session.io_binding()
        binding.bind_cpu_input("input_ids", ids)
        binding.bind_cpu_input("attention_mask", mask)
        for i, name in enumerate(self._cross_names):
            block.bind_output(binding, name.format("present"), i)
        session.run_with_iobinding(binding)
        return DeviceMemory(self._device, block, mask)

    def _run(
        self, wanted: tuple[str, ...], tokens: IntArray, cache: DeviceCache, bias: FloatArray, count: int
    ) -> tuple[list[Array], DeviceCache]:
        """Only the outputs `wanted` come to the host."""
        if self._in_place:
            cache = cache.with_room(self._shape.max_target_length)
        after = cache.block if self._in_place else self._one_longer(cache.block)
        bound = self._bound(cache, after, wanted, count)
        # An input is copied to the device when it is bound, not when the graph runs.
        bound.binding.bind_cpu_input("input_ids", np.ascontiguousarray(tokens[:, None], np.int64))
        bound.binding.bind_cpu_input("past_lengths", cache.lengths)
        if self._in_place:
            bound.binding.bind_cpu_input("total_length", np.array([cache.lengths.max() + 1], np.int32))
        if bound.bias is not bias:
            bound.binding.bind_cpu_input("logit_bias", np.ascontiguousarray(bias[None], np.float32))
            bound.bias = bias
        self._sessions[1].run_with_iobinding(bound.binding)
        outputs = bound.binding.get_outputs()[: len(wanted)]
        found = [output.numpy().copy() for output in outputs]  # the next run writes into the same memory
        spare = cache.spare if self._in_place else None
        return found, DeviceCache(cache.memory, after, cache.lengths + 1, spare)

    def _one_longer(self, block: Block) -> Block:
        layers, rows, heads, length, size = block.shape
        return self._device.block((layers, rows, heads, length + 1, size))

    def _bound(self, cache: DeviceCache, after: Block, wanted: tuple[str, ...], count: int) -> _Bound:
        """Inputs and outputs that stay where they are; kept with the block as long as they do."""
        bound: _Bound | None = cache.block.bound
        if bound is not None and bound.memory is cache.memory and (bound.wanted, bound.count) == (wanted, count):
            return bound
        binding = self._sessions[1].io_binding()
        for name in wanted:
            binding.bind_output(name)
        for i, name in enumerate(self._self_names):
            cache.block.bind_input(binding, name.format("past_key_values"), i)
            after.bind_output(binding, name.format("present"), i)
        for i, name in enumerate(self._cross_names):
            cache.memory.cross.bind_input(binding, name.format("past_key_values"), i)
        binding.bind_cpu_input("encoder_attention_mask", cache.memory.mask)
        binding.bind_cpu_input("num_candidates", np.array([count]))
        bound = _Bound(binding, cache.memory, wanted, count)
        if self._in_place:
            cache.block.bound = bound
        return bound


@dataclass
class _Bound:
    """A binding of the decoder's inputs and outputs, and what it is for."""

    binding: Any
    memory: DeviceMemory
    wanted: tuple[str, ...]
    count: int
    bias: FloatArray | None = None  # what is bound
