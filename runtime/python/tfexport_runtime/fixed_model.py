"""Graphs whose every shape is a number, run over any number of rows and lengths. See SPEC.md, "Cache".

Letters: B sentences, K beams, R rows of one run, S source length, T target length, H heads, D head size, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tfexport_runtime.cache import Array, Memory
from tfexport_runtime.errors import BundleError
from tfexport_runtime.graph_pair import ENCODER_STATE, Graph, GraphPair, check_states
from tfexport_runtime.manifest import Manifest, TensorInfo
from tfexport_runtime.proposers import best_candidates
from tfexport_runtime.rules import log_softmax
from tfexport_runtime.step_model import Candidates, FloatArray, IntArray


@dataclass
class Chunk:
    """R rows that the decoder takes in one run; those behind the last row of the cache are idle."""

    owners: IntArray  # [R] sentence of each row
    cross: list[Array]  # keys and values by turns, each [R, H, S, D]; 2L of them
    mask: npt.NDArray[np.int32]  # [R, S]
    layers: list[Array]  # likewise, each [R, H, T, D]


@dataclass
class FixedCache:
    """As many chunks as the rows need. Arrays that a chunk keeps from step to step stay where they are."""

    memory: Memory  # of all sentences, each [B, H, S, D]
    chunks: list[Chunk]
    lengths: npt.NDArray[np.int32]  # used positions, by row

    @classmethod
    def empty(cls, memory: Memory, beams: int, shape: tuple[int, ...], layers: int) -> FixedCache:
        """shape: of a layer's keys, [R, H, T, D]."""
        owners = np.repeat(np.arange(len(memory.mask)), beams)
        chunks = []
        for some in _chunked(owners, shape[0]):
            nothing = [np.zeros(shape, memory.cross[0].dtype) for _ in range(2 * layers)]
            chunks.append(Chunk(some, [a[some] for a in memory.cross], memory.mask[some], nothing))
        return cls(memory, chunks, np.zeros(len(owners), np.int32))

    def select(self, rows: IntArray) -> FixedCache:
        """Chunks whose rows all stay are kept; the others are written anew."""
        size = len(self.chunks[0].mask)
        owners = np.concatenate([chunk.owners for chunk in self.chunks])
        chunks = []
        for place, some in enumerate(_chunked(rows, size)):
            first, chunk = place * size, self.chunks[place]
            real = some[: len(rows) - first]
            stays = np.array_equal(real, np.arange(first, first + len(real)))
            chunks.append(chunk if stays else self._gathered(chunk, owners[some], some))
        return FixedCache(self.memory, chunks, self.lengths[rows])

    def _gathered(self, there: Chunk, owners: IntArray, rows: IntArray) -> Chunk:
        """rows [R]; `there`: the chunk in whose place it comes, whose sentences are mostly the same."""
        size, used = len(rows), int(self.lengths.max())
        cross, mask = there.cross, there.mask
        if not np.array_equal(owners, there.owners):
            cross, mask = [a[owners] for a in self.memory.cross], self.memory.mask[owners]
        layers = [np.zeros_like(a) for a in there.layers]
        for new, old in enumerate(rows.tolist()):
            source = self.chunks[old // size].layers
            for i, layer in enumerate(layers):
                layer[new, :, :used] = source[i][old % size, :, :used]
        return Chunk(owners, cross, mask, layers)


class FixedModel(GraphPair):
    """Sentences are encoded one by one; the rows of the decoder run in chunks of R, the last one filled up."""

    def __init__(self, manifest: Manifest, encoder: Graph, decoder: Graph) -> None:
        super().__init__(manifest, encoder, decoder)
        _, self._source = _numbers(manifest, "encoder", "input_ids", 2)
        _, self._candidates = _numbers(manifest, "decoder", "candidate_scores", 2)
        self._layer_shape = _numbers(manifest, "decoder", "past_key_values.0.decoder.key", 4)
        self._rows = self._layer_shape[0]

    def encode(self, sources: Sequence[Sequence[int]]) -> Memory:
        """Runs the encoder once for every source, padded to S."""
        mask = np.zeros((len(sources), self._source), np.int32)
        names = [name.format("present") for name in self._cross_names]
        found = []
        for sentence, source in enumerate(sources):
            mask[sentence, : len(source)] = 1
            found.append(self._encoder.run(names, self._source_inputs(source)))
        return Memory([np.concatenate(parts) for parts in zip(*found, strict=True)], mask)

    def encoder_states(self, source: Sequence[int]) -> FloatArray:
        check_states(self._gives_states)
        found = self._encoder.run([ENCODER_STATE], self._source_inputs(source))
        states: FloatArray = found[0][0, : len(source)]
        return states

    def _source_inputs(self, source: Sequence[int]) -> dict[str, Array]:
        ids, mask = np.full((1, self._source), self._pad_id, np.int32), np.zeros((1, self._source), np.int32)
        ids[0, : len(source)], mask[0, : len(source)] = source, 1
        return {"input_ids": ids, "attention_mask": mask}

    def start(self, sources: Sequence[Sequence[int]], beam_size: int) -> FixedCache:
        memory = self.encode(sources)
        return FixedCache.empty(memory, beam_size, self._layer_shape, self._shape.num_decoder_layers)

    def step(self, tokens: IntArray, cache: FixedCache, bias: FloatArray, count: int) -> tuple[Candidates, FixedCache]:
        """More candidates than the graph gives are ranked here."""
        if count > self._candidates:
            logits, cache = self.step_logits(tokens, cache)
            return best_candidates(log_softmax(logits + bias), count), cache
        (scores, ids), cache = self._run(["candidate_scores", "candidate_ids"], tokens, cache, bias)
        return Candidates(scores[:, :count], ids[:, :count]), cache

    def step_logits(self, tokens: IntArray, cache: FixedCache) -> tuple[FloatArray, FixedCache]:
        no_bias = np.zeros(self._shape.target_vocab_size, np.float32)
        (logits,), cache = self._run(["logits"], tokens, cache, no_bias)
        return logits, cache

    def step_attention(self, tokens: IntArray, cache: FixedCache) -> tuple[list[FloatArray], FixedCache]:
        no_bias = np.zeros(self._shape.target_vocab_size, np.float32)
        return self._run(list(self.attention_names), tokens, cache, no_bias)

    def _run(
        self, wanted: list[str], tokens: IntArray, cache: FixedCache, bias: FloatArray
    ) -> tuple[list[Array], FixedCache]:
        present = [name.format("present") for name in self._self_names]
        room = len(cache.chunks) * self._rows
        ids, lengths = np.zeros((room, 1), np.int32), np.zeros(room, np.int32)
        ids[: len(tokens), 0], lengths[: len(tokens)] = tokens, cache.lengths
        results, chunks = [], []
        for place, chunk in enumerate(cache.chunks):
            some = slice(place * self._rows, (place + 1) * self._rows)
            outputs = self._decoder.run(wanted + present, self._inputs(chunk, ids[some], lengths[some], bias))
            results.append(outputs[: len(wanted)])
            chunks.append(Chunk(chunk.owners, chunk.cross, chunk.mask, outputs[len(wanted) :]))
        joined = [np.concatenate(parts)[: len(tokens)] for parts in zip(*results, strict=True)]
        return joined, FixedCache(cache.memory, chunks, cache.lengths + 1)

    def _inputs(self, chunk: Chunk, ids: Array, lengths: Array, bias: FloatArray) -> dict[str, Array]:
        past = (name.format("past_key_values") for name in self._self_names)
        return {
            "input_ids": ids,
            "past_lengths": lengths,
            "logit_bias": bias[None],
            **self._cross_inputs(Memory(chunk.cross, chunk.mask)),
            **dict(zip(past, chunk.layers, strict=True)),
        }


def _chunked(rows: IntArray, size: int) -> list[IntArray]:
    """In pieces of `size`; the last one is filled up with its last row."""
    filled = np.concatenate([rows, np.repeat(rows[-1:], -len(rows) % size)])
    return list(filled.reshape(-1, size))


def _numbers(manifest: Manifest, graph: str, name: str, axes: int) -> tuple[int, ...]:
    """The shape of an input or output of a graph."""
    info = manifest.graphs[graph]
    for tensor in (*info.inputs, *info.outputs):
        match tensor:
            case TensorInfo(name=found, shape=shape) if found == name and len(shape) == axes:
                if all(isinstance(axis, int) for axis in shape):
                    return tuple(int(axis) for axis in shape)
    raise BundleError(f"{graph} graph: no {name} of {axes} axes whose sizes are numbers; export the model again")
