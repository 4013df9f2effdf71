"""Decoding in the memory of a device, here that of the processor, against the models that keep numpy arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.cases import examples
from tests.search.plain_cache import HEADS, LAYERS, LIMIT, SIZE, SOURCE, STEPS, Expected, new_memory, next_rows, start
from tests.search.real_models import WAYS, ragged_requests
from tfexport.passes.attention_output import AttentionChoice, attention_output, attention_signatures
from tfexport_runtime.bundle import Bundle, read_bundle
from tfexport_runtime.cache import FIRST_CAPACITY
from tfexport_runtime.device import Block, Device, cache_device
from tfexport_runtime.device_model import DeviceCache, DeviceMemory, DeviceModel
from tfexport_runtime.errors import UnavailableError
from tfexport_runtime.further_outputs import with_attention
from tfexport_runtime.gather_graph import gather_graph
from tfexport_runtime.graph_pair import GrowingModel
from tfexport_runtime.manifest import TensorInfo
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.providers import PROVIDERS
from tfexport_runtime.search import search
from tfexport_runtime.session import InPlaceModel, SessionOptions, open_model
from tfexport_runtime.step_model import Target
from tfexport_runtime.translator import Translator
from tfexport_train.checkpoint import Checkpoint

KINDS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
DEVICES = [Device("cpu", np.dtype(kind), (SIZE,)) for kind in (np.float32, np.float16)]


@pytest.mark.parametrize("word", KINDS)
def test_the_handwritten_graph_is_valid_and_gathers(word: int) -> None:
    graph = gather_graph(word)
    onnx.checker.check_model(onnx.load_from_string(graph), full_check=True)
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    data = np.arange(24).reshape(2, 4, 3).astype(KINDS[word])
    indices = np.array([3, 0, 0])
    (gathered,) = session.run(["gathered"], {"data": data, "indices": indices})
    assert np.array_equal(gathered, data[:, indices])


def values(block: Block) -> npt.NDArray[Any]:
    """The block as an array over the same memory, as only the processor's can be."""
    array: npt.NDArray[Any] = block.value.numpy().reshape(-1)[: math.prod(block.shape)].reshape(block.shape)
    return array


def filled(device: Device, content: npt.NDArray[Any]) -> Block:
    layers, rows, heads, length, size = content.shape
    block = device.block((layers, rows, heads, length, size))
    values(block)[:] = content
    return block


@examples(120)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(DEVICES),
    st.booleans(),
    STEPS,
)
def test_the_cache_is_plain_indexing(
    seed: int, count: int, beams: int, capacity: int, device: Device, ragged: bool, actions: list[str]
) -> None:
    generator = np.random.default_rng(seed)
    memory = new_memory(generator, count)
    memory.cross = [array.astype(device.dtype) for array in memory.cross]
    expected = start(memory, beams)
    there = DeviceMemory(device, filled(device, np.array(memory.cross)), memory.mask)
    cache = DeviceCache.empty(there, (2 * LAYERS, count * beams, HEADS, capacity, SIZE))
    for action in actions:
        if action == "step":
            if max(map(len, expected.rows)) == LIMIT:
                continue
            cache = write_token(cache.with_room(LIMIT), expected, generator, ragged)
        else:
            rows = next_rows(action, generator, expected)
            same = rows == list(range(len(expected.rows)))
            before, cache = cache, cache.select(np.array(rows))
            expected.select(rows)
            assert (cache is before) == same
            assert same or cache.block is not before.block
        assert_cache(cache, expected)


def write_token(cache: DeviceCache, expected: Expected, generator: np.random.Generator, ragged: bool) -> DeviceCache:
    """What the graph does. Ragged: some rows get none."""
    block, lengths = values(cache.block), cache.lengths.copy()
    for row, tokens in enumerate(expected.rows):
        if ragged and generator.random() < 0.3:
            continue
        token = generator.random((2 * LAYERS, HEADS, SIZE), np.float32).astype(block.dtype)
        tokens.append(token)
        block[:, row, :, lengths[row]] = token
        lengths[row] += 1
    return replace(cache, lengths=lengths)


def assert_cache(cache: DeviceCache, expected: Expected) -> None:
    block, cross = values(cache.block), values(cache.memory.cross)
    assert np.array_equal(cache.memory.mask, np.array(expected.masks))
    assert cross.shape == (2 * LAYERS, len(expected.masks), HEADS, SOURCE, SIZE)
    assert np.array_equal(cross, np.array(expected.cross).swapaxes(0, 1))
    assert block.shape[:3] == (2 * LAYERS, len(expected.rows), HEADS)
    assert block.shape[3] <= LIMIT
    assert np.isfinite(block).all()
    assert cache.lengths.dtype == np.int32
    assert cache.lengths.tolist() == [len(tokens) for tokens in expected.rows]
    for row, tokens in enumerate(expected.rows):
        for position, token in enumerate(tokens):
            assert np.array_equal(block[:, row, :, position], token)


@dataclass
class DeviceBinding:
    """As of a device: an input is copied when it is bound, so that later changes of the array are not seen."""

    binding: Any
    fetched: set[str]  # outputs that come to the host

    def bind_cpu_input(self, name: str, array: npt.NDArray[Any]) -> None:
        self.binding.bind_cpu_input(name, array.copy())

    def bind_output(self, name: str, *place: Any) -> None:
        self.binding.bind_output(name, *place)
        if not place:
            self.fetched.add(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.binding, name)


@dataclass
class DeviceSession:
    session: onnxruntime.InferenceSession
    bindings: int = 0
    fetched: set[str] = field(default_factory=set)

    def io_binding(self) -> DeviceBinding:
        self.bindings += 1
        return DeviceBinding(self.session.io_binding(), self.fetched)

    def run_with_iobinding(self, bound: DeviceBinding) -> None:
        self.session.run_with_iobinding(bound.binding)

    def __getattr__(self, name: str) -> Any:
        assert name != "run"
        return getattr(self.session, name)


@dataclass(frozen=True)
class Pair:
    expected: InPlaceModel | GrowingModel
    found: DeviceModel
    decoder: DeviceSession  # of `found`
    target: Target


def pair(bundle: Bundle, checkpoint: Checkpoint) -> Pair:
    """The bundle's graphs, with what they look at among the outputs."""
    choice, manifest, config = AttentionChoice(), bundle.manifest, checkpoint.config
    further = tuple(TensorInfo(s.name, "float32", ("rows", 4, "source")) for s in attention_signatures(config, choice))
    info = manifest.graphs["decoder"]
    graphs = {**manifest.graphs, "decoder": replace(info, outputs=(*info.outputs, *further))}
    manifest = replace(manifest, graphs=graphs)
    graph = attention_output(ir.load(bundle.path("decoder.onnx")), config, choice)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.add_session_config_entry("session.model_external_initializers_file_folder_path", str(bundle.folder))
    sessions = [
        onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), settings, providers=[PROVIDERS["cpu"]])
        for model in (ir.load(bundle.path("encoder.onnx")), graph)
    ]
    model = InPlaceModel if manifest.cache.form == "in_place" else GrowingModel
    encoder, decoder = map(DeviceSession, sessions)
    found = DeviceModel(manifest, encoder, decoder, "cpu")
    return Pair(model(manifest, *sessions), found, decoder, manifest.search_target())


@pytest.fixture(scope="module", params=["tiny_bundle", "tiny_portable_bundle"])
def models(request: pytest.FixtureRequest, tiny_checkpoint: Checkpoint) -> Pair:
    return pair(read_bundle(request.getfixturevalue(request.param)), tiny_checkpoint)


@pytest.fixture(autouse=True)
def _new_memory_holds_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    block = Device.block

    def poisoned(self: Device, shape: tuple[int, int, int, int, int]) -> Block:
        made = block(self, shape)
        values(made)[:] = np.nan
        return made

    monkeypatch.setattr(Device, "block", poisoned)


LONG = {"beam_size": 2, "n_best": 2, "suppress_tokens": (2,), "max_length_ratio": 7.0, "max_length_extra": 0}


@pytest.mark.parametrize("options", [*WAYS.values(), {**LONG, "max_length": 63}], ids=[*WAYS, "long"])
def test_tokens_and_scores_are_those_of_the_arrays(models: Pair, options: dict[str, Any]) -> None:
    wanted, requests = TranslationOptions(**{"max_length": 12, **options}), ragged_requests(7)
    expected = search(models.expected, requests, wanted, models.target)
    assert search(models.found, requests, wanted, models.target) == expected
    lengths = {len(hypotheses[0].ids) for hypotheses in expected}
    assert max(lengths) > FIRST_CAPACITY or wanted.max_length == 12


def test_outputs_of_a_step_are_those_of_the_arrays_and_stay(models: Pair) -> None:
    """Sentences change places, what is asked for changes, and the next step computes into the same memory."""
    kept = []
    caches: list[Any] = [model.start([[5, 6, 7, 2], [9, 2]], 2) for model in (models.expected, models.found)]
    for rows in ([1, 0, 2, 2], [2, 3, 0, 1], [1, 0, 2, 3], [0, 1, 2, 3], [1, 1, 3, 2]):
        outputs = []
        for i, model in enumerate((models.expected, models.found)):
            given, cache = all_outputs(model, caches[i], models.target)
            outputs.append(given)
            caches[i] = cache.select(np.array(rows))
        kept.append((outputs[1], [array.copy() for array in outputs[0]]))
    for found, expected in kept:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def all_outputs(model: Any, cache: Any, target: Target) -> tuple[list[npt.NDArray[Any]], Any]:
    tokens, generator = np.array([1, 7, 1, 9]), np.random.default_rng(3)
    found, cache = model.step_logits(tokens, cache)
    given = [found]
    for count in (3, 5, 5):
        bias = generator.normal(size=target.vocab_size).astype(np.float32)
        candidates, cache = model.step(tokens, cache, bias, count)
        given += candidates
    seen, cache = model.step_attention(tokens, cache)
    logits, cache = model.step_logits(tokens, cache)
    return [*given, *seen, logits], cache


def test_attention_of_hypotheses_is_that_of_the_arrays(models: Pair) -> None:
    options, (request,) = TranslationOptions(beam_size=3, n_best=3, max_length=9), ragged_requests(1)
    (hypotheses,) = search(models.found, [request], options, models.target)
    found = with_attention(models.found, request.source, hypotheses, models.target)
    expected = with_attention(models.expected, request.source, hypotheses, models.target)
    for one, other in zip(found, expected, strict=True):
        assert list(one.attention) == ["cross_attention"]
        np.testing.assert_array_equal(one.attention["cross_attention"], other.attention["cross_attention"])


def test_only_candidates_come_to_the_host_and_two_blocks_take_turns(models: Pair) -> None:
    decoder, (request,) = models.decoder, ragged_requests(1)
    decoder.fetched.clear()
    before = decoder.bindings
    options = TranslationOptions(beam_size=4, min_length=20, max_length=20)
    (hypotheses,) = search(models.found, [request], options, models.target)
    assert len(hypotheses[0].ids) == 20
    assert decoder.fetched == {"candidate_scores", "candidate_ids"}
    assert decoder.bindings - before == (2 if isinstance(models.expected, InPlaceModel) else 20)


@dataclass
class Placed:
    """A decoder whose inputs are read in these places."""

    places: dict[str, str]

    def get_inputs(self) -> list[Any]:
        return [TensorInfo(name, "float16", ()) for name in self.places]

    def get_input_memory_infos(self) -> list[Any]:
        kinds = onnxruntime.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
        return [onnxruntime.OrtMemoryInfo(place, *kinds) for place in self.places.values()]


def test_the_cache_lies_where_the_decoder_reads_it() -> None:
    """Operators that a GPU does not have run on the processor, which would be given a copy made at the beginning."""
    places = {"input_ids": "Cpu", "a": "Cuda", "b": "Cuda", "c": "Cpu", "d": "Cpu"}
    decoder: Any = Placed(places)
    assert cache_device(decoder, ["a", "b"], "cuda") == "cuda"
    assert cache_device(decoder, ["c", "d"], "cuda") == "cpu"
    with pytest.raises(UnavailableError, match="choose --provider cpu"):
        cache_device(decoder, ["a", "c"], "cuda")


@pytest.mark.parametrize("bundle", ["tiny_bundle", "tiny_portable_bundle"])
def test_another_provider_than_the_processor_is_a_device(
    bundle: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder: Path = request.getfixturevalue(bundle)
    expected = Translator(folder, SessionOptions(threads=1)).translate(["ein hund", "", "ball am see"])
    monkeypatch.setitem(PROVIDERS, "cuda", "CPUExecutionProvider")
    options = SessionOptions(threads=1, provider="cuda")
    assert isinstance(open_model(read_bundle(folder), options), DeviceModel)
    assert Translator(folder, options).translate(["ein hund", "", "ball am see"]) == expected
