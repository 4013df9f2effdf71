"""An encoder and a step graph in any engine that runs a graph by the names of its inputs and outputs.

Letters: B sentences, K beams, R = B*K rows, S source length, H heads, D head size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from tfexport_runtime.cache import Array, GrowingCache, Memory
from tfexport_runtime.errors import BundleError, OptionError
from tfexport_runtime.manifest import Manifest, TensorInfo
from tfexport_runtime.step_model import Candidates, FloatArray, IntArray

ATTENTION, ENCODER_STATE = "cross_attention", "encoder_state"  # outputs on request, the first also with a layer behind


class Graph(Protocol):
    """One graph, ready to run: a session of ONNX Runtime, or an adapter of another engine."""

    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Array]:
        """The wanted outputs, in that order."""


class GraphPair:
    """Both graphs and what the forms of the cache share."""

    def __init__(self, manifest: Manifest, encoder: Graph, decoder: Graph) -> None:
        self._shape = manifest.model
        self._pad_id = manifest.source.pad_id
        self._cache_head = cache_head(manifest)
        self.attention_names = attention_names(t.name for t in manifest.graphs["decoder"].outputs)
        self._gives_states = any(t.name == ENCODER_STATE for t in manifest.graphs["encoder"].outputs)
        self._encoder, self._decoder = encoder, decoder
        layers = range(self._shape.num_decoder_layers)
        self._cross_names = [f"{{}}.{i}.encoder.{part}" for i in layers for part in ("key", "value")]
        self._self_names = [f"{{}}.{i}.decoder.{part}" for i in layers for part in ("key", "value")]

    def encode(self, sources: Sequence[Sequence[int]]) -> Memory:
        """Pads B sources to the longest and runs the encoder graph."""
        ids, mask = padded(sources, self._pad_id)
        outputs = [name.format("present") for name in self._cross_names]
        return Memory(self._encoder.run(outputs, {"input_ids": ids, "attention_mask": mask}), mask)

    def encoder_states(self, source: Sequence[int]) -> FloatArray:
        """The encoder's last hidden states, [S, d_model]. Raises OptionError where the bundle does not give them."""
        check_states(self._gives_states)
        ids, mask = padded([source], self._pad_id)
        found = self._encoder.run([ENCODER_STATE], {"input_ids": ids, "attention_mask": mask})
        states: FloatArray = found[0][0]
        return states

    def _cross_inputs(self, memory: Memory) -> dict[str, Array]:
        names = (name.format("past_key_values") for name in self._cross_names)
        return {"encoder_attention_mask": memory.mask, **dict(zip(names, memory.cross, strict=True))}


class GrowingModel(GraphPair):
    """Decoder graphs of standard operators: the cache goes in and comes out one token longer."""

    def start(self, sources: Sequence[Sequence[int]], beam_size: int) -> GrowingCache:
        shape, memory = self._shape, self.encode(sources)
        rows = len(sources) * beam_size
        return GrowingCache.empty(memory, rows, shape.num_decoder_layers, *self._cache_head)

    def step(
        self, tokens: IntArray, cache: GrowingCache, bias: FloatArray, count: int
    ) -> tuple[Candidates, GrowingCache]:
        (scores, ids), cache = self._run(["candidate_scores", "candidate_ids"], tokens, cache, bias, count)
        return Candidates(scores, ids), cache

    def step_logits(self, tokens: IntArray, cache: GrowingCache) -> tuple[FloatArray, GrowingCache]:
        no_bias = np.zeros(self._shape.target_vocab_size, np.float32)
        (logits,), cache = self._run(["logits"], tokens, cache, no_bias, 1)
        return logits, cache

    def step_attention(self, tokens: IntArray, cache: GrowingCache) -> tuple[list[FloatArray], GrowingCache]:
        no_bias = np.zeros(self._shape.target_vocab_size, np.float32)
        return self._run(list(self.attention_names), tokens, cache, no_bias, 1)

    def _run(
        self, wanted: list[str], tokens: IntArray, cache: GrowingCache, bias: FloatArray, count: int
    ) -> tuple[list[Array], GrowingCache]:
        past = (name.format("past_key_values") for name in self._self_names)
        inputs: dict[str, Array] = {
            "input_ids": tokens[:, None],
            "past_lengths": cache.lengths,
            "logit_bias": bias[None],
            "num_candidates": np.array([count], np.int64),
            **self._cross_inputs(cache.memory),
            **dict(zip(past, cache.layers, strict=True)),
        }
        outputs = self._decoder.run(wanted + [name.format("present") for name in self._self_names], inputs)
        longer = GrowingCache(cache.memory, outputs[len(wanted) :], cache.lengths + 1)
        return outputs[: len(wanted)], longer


def attention_names(outputs: Iterable[str]) -> tuple[str, ...]:
    """Those that say what tokens look at; none where they were not asked for at export."""
    return tuple(name for name in outputs if name.partition(".")[0] == ATTENTION)


def check_states(given: bool) -> None:
    if not given:
        raise OptionError("this bundle does not give the encoder's states; export it with --with encoder-state")


def padded(sources: Sequence[Sequence[int]], pad_id: int) -> tuple[IntArray, npt.NDArray[np.int32]]:
    """Ids and mask of B sources, [B, S] of the longest."""
    ids = np.full((len(sources), max(map(len, sources))), pad_id, np.int64)
    mask = np.zeros(ids.shape, np.int32)
    for row, source in enumerate(sources):
        ids[row, : len(source)] = source
        mask[row, : len(source)] = 1
    return ids, mask


def cache_head(manifest: Manifest, part: Literal["decoder", "encoder"] = "decoder") -> tuple[int, int]:
    """Heads and head size of the self- or the cross-attention cache: the graph may pad the model's head size."""
    name = f"past_key_values.0.{part}.key"
    for tensor in manifest.graphs["decoder"].inputs:
        match tensor:
            case TensorInfo(name=found, shape=(*_, int(heads), _, int(size))) if found == name:
                return heads, size
    raise BundleError(f"decoder graph: no input {name} of shape [rows, heads, length, size]")
