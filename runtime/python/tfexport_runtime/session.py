"""The bundle's graphs in ONNX Runtime: the only module that knows it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tfexport_runtime.bundle import Bundle
from tfexport_runtime.cache import Array, GrowingCache, InPlaceCache, Memory
from tfexport_runtime.errors import BundleError, OptionError, UnavailableError
from tfexport_runtime.manifest import TensorInfo
from tfexport_runtime.step_model import Candidates, FloatArray, IntArray

if TYPE_CHECKING:
    import onnxruntime

FIRST_CAPACITY = 32  # tokens that a new in-place cache holds before it is doubled


@dataclass(frozen=True)
class SessionOptions:
    """How the graphs are run."""

    threads: int | None = None  # of one batch; None: one for each core that the process may use, shared by the batches
    parallel_batches: int = 1  # batches that are translated at the same time, over one copy of the weights
    provider: Literal["cpu", "cuda"] = "cpu"
    spinning: bool = True  # threads wait actively between operators: fastest, but keeps cores busy
    prepacking: bool = True  # False: weights stay as they lie in the file, mapped; loads at once, but runs slower
    profile: str | None = None  # where ONNX Runtime's profiles begin; a graph's is written when the translator is gone


def open_model(bundle: Bundle, options: SessionOptions) -> InPlaceModel | GrowingModel:
    """Raises OptionError, BundleError for graphs that do not load, UnavailableError for what is missing here."""
    if options.parallel_batches < 1 or (options.threads is not None and options.threads < 1):
        raise OptionError("threads and parallel_batches must be at least 1")
    form = bundle.manifest.cache.form
    return InPlaceModel(bundle, options) if form == "in_place" else GrowingModel(bundle, options)


class _Model:
    """Both graphs and what the two cache forms share."""

    def __init__(self, bundle: Bundle, options: SessionOptions) -> None:
        self._shape = bundle.manifest.model
        self._pad_id = bundle.manifest.source.pad_id
        self._cache_head = _cache_head(bundle)
        self._encoder = _session(bundle, "encoder", options)
        self._decoder = _session(bundle, "decoder", options)
        layers = range(self._shape.num_decoder_layers)
        self._cross_names = [f"{{}}.{i}.encoder.{part}" for i in layers for part in ("key", "value")]
        self._self_names = [f"{{}}.{i}.decoder.{part}" for i in layers for part in ("key", "value")]

    def encode(self, sources: Sequence[Sequence[int]]) -> Memory:
        """Pads B sources to the longest and runs the encoder graph."""
        ids = np.full((len(sources), max(map(len, sources))), self._pad_id, np.int64)
        mask = np.zeros(ids.shape, np.int32)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = source
            mask[row, : len(source)] = 1
        outputs = [name.format("present") for name in self._cross_names]
        return Memory(self._encoder.run(outputs, {"input_ids": ids, "attention_mask": mask}), mask)

    def _cross_inputs(self, memory: Memory) -> dict[str, Array]:
        names = (name.format("past_key_values") for name in self._cross_names)
        return {"encoder_attention_mask": memory.mask, **dict(zip(names, memory.cross, strict=True))}


class InPlaceModel(_Model):
    """Decoder graphs that write into buffers of the cache: nothing is copied in or out of a step."""

    def start(self, sources: Sequence[Sequence[int]], beam_size: int) -> InPlaceCache:
        shape, memory = self._shape, self.encode(sources)
        capacity = min(FIRST_CAPACITY, shape.max_target_length)
        rows = len(sources) * beam_size
        return InPlaceCache.empty(memory, rows, shape.num_decoder_layers, *self._cache_head, capacity)

    def step(
        self, tokens: IntArray, cache: InPlaceCache, bias: FloatArray, count: int
    ) -> tuple[Candidates, InPlaceCache]:
        cache, bound = self._run(tokens, cache, bias, count)
        return Candidates(bound.scores[cache.places], bound.ids[cache.places]), cache

    def step_logits(self, tokens: IntArray, cache: InPlaceCache) -> tuple[FloatArray, InPlaceCache]:
        cache, bound = self._run(tokens, cache, None, 1)
        logits: FloatArray = bound.binding.get_outputs()[bound.logits_place].numpy()
        return logits[cache.places], cache

    def _run(
        self, tokens: IntArray, cache: InPlaceCache, bias: FloatArray | None, count: int
    ) -> tuple[InPlaceCache, _StepBinding]:
        cache = cache.with_room(self._shape.max_target_length)
        bound: _StepBinding | None = cache.binding
        if bound is None or bound.count != count:
            bound = cache.binding = self._bind(cache, count)
        bound.tokens[cache.places, 0] = tokens
        if bias is not None and bias is not bound.bias_now:
            bound.bias[0], bound.bias_now = bias, bias
        bound.total_length[0] = cache.lengths.max() + 1
        self._decoder.run_with_iobinding(bound.binding)
        cache.lengths += 1
        return cache, bound

    def _bind(self, cache: InPlaceCache, count: int) -> _StepBinding:
        """Binds all arrays once; they are then changed in place until rows or capacity change."""
        import onnxruntime

        rows = len(cache.lengths)
        bound = _StepBinding(
            self._decoder.io_binding(),
            count,
            tokens=np.zeros((rows, 1), np.int64),
            total_length=np.zeros(1, np.int32),
            bias=np.zeros((1, self._shape.target_vocab_size), np.float32),
            scores=np.zeros((rows, count), np.float32),
            ids=np.zeros((rows, count), np.int64),
        )
        inputs: dict[str, Array] = {
            "input_ids": bound.tokens,
            "past_lengths": cache.lengths,
            "total_length": bound.total_length,
            "logit_bias": bound.bias,
            "num_candidates": np.array([count], np.int64),
            **self._cross_inputs(cache.memory),
        }
        outputs: dict[str, Array] = {"candidate_scores": bound.scores, "candidate_ids": bound.ids}
        for i, name in enumerate(self._self_names):
            inputs[name.format("past_key_values")] = outputs[name.format("present")] = cache.layer(i)
        for name, array in inputs.items():
            bound.binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        bound.arrays = [*inputs.values(), *outputs.values()]
        for name, array in outputs.items():
            bound.binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        bound.binding.bind_output("logits")
        bound.logits_place = len(outputs)
        return bound


@dataclass
class _StepBinding:
    """The arrays of a decoding step, bound to the decoder's inputs and outputs."""

    binding: Any
    count: int
    tokens: IntArray
    total_length: Array
    bias: FloatArray
    scores: FloatArray
    ids: IntArray
    bias_now: FloatArray | None = None  # what `bias` was filled from
    logits_place: int = 0
    arrays: Sequence[Array] = ()  # kept alive as long as the binding points into them


class GrowingModel(_Model):
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


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cache_head(bundle: Bundle) -> tuple[int, int]:
    """Heads and head size of the self-attention cache: the graph may pad the model's head size."""
    for tensor in bundle.manifest.graphs["decoder"].inputs:
        match tensor:
            case TensorInfo(name="past_key_values.0.decoder.key", shape=(str(), int(heads), str(), int(size))):
                return heads, size
    raise BundleError("decoder graph: no input past_key_values.0.decoder.key of shape [rows, heads, length, size]")


def _session(bundle: Bundle, graph: str, options: SessionOptions) -> onnxruntime.InferenceSession:
    try:
        import onnxruntime
    except ImportError as error:
        raise UnavailableError('ONNX Runtime is not installed; run: pip install "tfexport[cpu]"') from error
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads or max(1, available_cores() // options.parallel_batches)
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    settings.add_session_config_entry("session.intra_op.allow_spinning", str(int(options.spinning)))
    settings.add_session_config_entry("session.disable_prepacking", str(int(not options.prepacking)))
    # Long enough to wait for the next step, short enough not to stand in the way of the other graph's threads.
    settings.add_session_config_entry("session.intra_op.spin_duration_us", "1000")
    # Add and LayerNormalization take half the time of SkipLayerNormalization.
    settings.add_session_config_entry("optimization.disable_specified_optimizers", "SkipLayerNormFusion")
    if options.profile is not None:
        settings.enable_profiling, settings.profile_file_prefix = True, f"{options.profile}-{graph}"
    provider = _PROVIDERS.get(options.provider)
    if provider is None:
        raise OptionError(f"provider must be one of {', '.join(_PROVIDERS)}, not {options.provider!r}")
    unavailable = UnavailableError(
        f'{provider} is not available here: it needs an NVIDIA GPU and pip install "tfexport[gpu]" '
        "in place of [cpu]; or choose --provider cpu"
    )
    if provider not in onnxruntime.get_available_providers():
        raise unavailable
    path = bundle.path(bundle.manifest.graphs[graph].file)
    try:
        session = onnxruntime.InferenceSession(str(path), settings, providers=[provider])
    except Exception as error:
        raise BundleError(
            f"{path}: ONNX Runtime {onnxruntime.__version__} cannot load this graph "
            f"(made for {bundle.manifest.requirements.onnxruntime} and newer): {str(error).splitlines()[0]}"
        ) from error
    if provider not in session.get_providers():  # there, but it could not start
        raise unavailable
    return session


_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
