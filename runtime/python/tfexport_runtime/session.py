"""The bundle's graphs in ONNX Runtime: with device.py the only module that knows it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tfexport_runtime.bundle import Bundle
from tfexport_runtime.cache import FIRST_CAPACITY, Array, InPlaceCache
from tfexport_runtime.errors import BundleError, OptionError, UnavailableError
from tfexport_runtime.fixed_model import FixedModel
from tfexport_runtime.graph_pair import GraphPair, GrowingModel
from tfexport_runtime.manifest import GraphFormat, Manifest
from tfexport_runtime.pages import drop_pages_of, private_memory, use_large_pages_soon
from tfexport_runtime.providers import PROVIDERS, DeviceName
from tfexport_runtime.search_graph import SearchGraph
from tfexport_runtime.step_model import Candidates, FloatArray, IntArray

if TYPE_CHECKING:
    import onnxruntime

    from tfexport_runtime.device_model import DeviceModel

FORMATS: tuple[GraphFormat, ...] = ("onnx", "ort", "single")  # what ONNX Runtime runs


@dataclass(frozen=True)
class SessionOptions:
    """How the graphs are run."""

    threads: int | None = None  # of one batch; None: one for each core that the process may use, shared by the batches
    parallel_batches: int = 1  # batches that are translated at the same time, over one copy of the weights
    provider: DeviceName = "cpu"  # cuda: keys and values stay in its memory; not run on a GPU yet
    spinning: bool = True  # threads wait actively between operators: fastest, but keeps cores busy
    prepacking: bool = True  # False: weights stay as they lie in the file, mapped; loads at once, but runs slower
    large_pages: bool = True  # after a second, where Linux gives them on request: steps take 5-15 % less time
    profile: str | None = None  # where ONNX Runtime's profiles begin; a graph's is written when the translator is gone


def open_model(bundle: Bundle, options: SessionOptions) -> BundleModel:
    """Raises OptionError, BundleError for graphs that do not load, UnavailableError for what is missing here."""
    if options.parallel_batches < 1 or (options.threads is not None and options.threads < 1):
        raise OptionError("threads and parallel_batches must be at least 1")
    manifest = bundle.manifest
    if manifest.graph_format not in FORMATS:
        raise BundleError(
            f"{bundle.origin}: of format {manifest.graph_format}, which another engine runs: see the README.md in it"
        )
    before = private_memory() if options.large_pages and options.provider == "cpu" else None
    model = _open_graphs(bundle, options)
    if before is not None:
        use_large_pages_soon(before)
    return model


def _open_graphs(bundle: Bundle, options: SessionOptions) -> BundleModel:
    manifest = bundle.manifest
    if manifest.graph_format == "single":
        names = [tensor.name for tensor in manifest.graphs["search"].outputs]
        return SearchGraph(_session(bundle, "search", options), manifest.source.pad_id, names)
    # The larger graph first, and its pages given back before the other comes: the least memory at the highest point.
    decoder, encoder = (_session(bundle, graph, options) for graph in ("decoder", "encoder"))
    if manifest.cache.form == "fixed":
        return FixedModel(manifest, encoder, decoder)
    if options.provider != "cpu":
        from tfexport_runtime.device_model import DeviceModel  # here, for a start without it on processors

        return DeviceModel(manifest, encoder, decoder, options.provider)
    model = InPlaceModel if manifest.cache.form == "in_place" else GrowingModel
    return model(manifest, encoder, decoder)


class InPlaceModel(GraphPair):
    """Decoder graphs that write into buffers of the cache: nothing is copied in or out of a step."""

    def __init__(
        self, manifest: Manifest, encoder: onnxruntime.InferenceSession, decoder: onnxruntime.InferenceSession
    ) -> None:
        super().__init__(manifest, encoder, decoder)
        self._session = decoder

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

    def step_attention(self, tokens: IntArray, cache: InPlaceCache) -> tuple[list[FloatArray], InPlaceCache]:
        cache, bound = self._run(tokens, cache, None, 1, self.attention_names)
        further = bound.binding.get_outputs()[bound.logits_place + 1 :]
        return [weights.numpy()[cache.places] for weights in further], cache

    def _run(
        self,
        tokens: IntArray,
        cache: InPlaceCache,
        bias: FloatArray | None,
        count: int,
        further: tuple[str, ...] = (),
    ) -> tuple[InPlaceCache, _StepBinding]:
        """further: names of outputs on request."""
        cache = cache.with_room(self._shape.max_target_length)
        bound: _StepBinding | None = cache.binding
        if bound is None or bound.count != count or bound.further != further:
            bound = cache.binding = self._bind(cache, count, further)
        bound.tokens[cache.places, 0] = tokens
        if bias is not None and bias is not bound.bias_now:
            bound.bias[0], bound.bias_now = bias, bias
        bound.total_length[0] = cache.lengths.max() + 1
        self._session.run_with_iobinding(bound.binding)
        cache.lengths += 1
        return cache, bound

    def _bind(self, cache: InPlaceCache, count: int, further: tuple[str, ...]) -> _StepBinding:
        """Binds all arrays once; they are then changed in place until rows or capacity change."""
        import onnxruntime

        rows = len(cache.lengths)
        bound = _StepBinding(
            self._session.io_binding(),
            count,
            further,
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
        arrays = {id(array): array for array in [*inputs.values(), *outputs.values()]}
        values = {key: onnxruntime.OrtValue.ortvalue_from_numpy(array) for key, array in arrays.items()}
        bound.arrays = [*arrays.values()]
        for name, array in inputs.items():
            bound.binding.bind_ortvalue_input(name, values[id(array)])
        for name, array in outputs.items():
            bound.binding.bind_ortvalue_output(name, values[id(array)])
        for name in ("logits", *further):
            bound.binding.bind_output(name)
        bound.logits_place = len(outputs)
        return bound


@dataclass
class _StepBinding:
    """The arrays of a decoding step, bound to the decoder's inputs and outputs."""

    binding: Any
    count: int
    further: tuple[str, ...]
    tokens: IntArray
    total_length: Array
    bias: FloatArray
    scores: FloatArray
    ids: IntArray
    bias_now: FloatArray | None = None  # what `bias` was filled from
    logits_place: int = 0
    arrays: Sequence[Array] = ()  # kept alive as long as the binding points into them


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    provider = PROVIDERS.get(options.provider)
    if provider is None:
        raise OptionError(f"provider must be one of {', '.join(PROVIDERS)}, not {options.provider!r}")
    unavailable = UnavailableError(
        f'{provider} is not available here: it needs an NVIDIA GPU and pip install "tfexport[gpu]" '
        "in place of [cpu]; or choose --provider cpu"
    )
    if provider not in onnxruntime.get_available_providers():
        raise unavailable
    if options.provider == "cuda":
        with redirect_stdout(sys.stderr):  # it prints what it does not find
            onnxruntime.preload_dlls()  # CUDA as pip installs it lies where no loader looks
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
    if options.prepacking:
        drop_pages_of([bundle.path(name) for name in bundle.manifest.weights])
    return session


BundleModel: TypeAlias = "InPlaceModel | GrowingModel | DeviceModel | FixedModel | SearchGraph"
