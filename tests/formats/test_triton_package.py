"""A model repository for Triton Inference Server: its configuration by the server's schema, its front without one."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.conftest import made_once
from tests.formats import triton_server
from tests.formats.triton_server import InferenceRequest, Tensor, get_output_tensor_by_name, strings
from tfexport.errors import ExportError
from tfexport.package_triton import package_triton
from tfexport_runtime.translator import Translator

TEXTS = ["ein kleiner hund", "", "über die grüne wiese und mit dem ball", "see"]
ONNX_TYPES = {
    "TYPE_FP32": "tensor(float)",
    "TYPE_INT64": "tensor(int64)",
    "TYPE_INT32": "tensor(int32)",
    "TYPE_BOOL": "tensor(bool)",
}


@pytest.fixture(scope="session")
def repository(tiny_portable_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "triton-models", lambda path: package_triton(tiny_portable_bundle, path))


@pytest.fixture
def front(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The model.py of the front, started as the server starts it."""
    monkeypatch.setattr(triton_server, "repository", repository)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", triton_server)
    spec = importlib.util.spec_from_file_location("model", repository / "translator" / "1" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    folder = str(repository / "translator")
    model.initialize({"model_repository": folder, "model_version": "1", "model_name": "translator"})
    return model


def request(*texts: str | bytes, options: str | None = None) -> InferenceRequest:
    inputs = [Tensor("text", strings(*texts))]
    return InferenceRequest(
        inputs if options is None else [*inputs, Tensor("options", strings(*[options] * len(texts)))]
    )


def answer(response: Any) -> tuple[list[str], list[float]]:
    texts, scores = (get_output_tensor_by_name(response, name) for name in ("translation", "score"))
    assert texts is not None
    assert scores is not None
    assert texts.array.shape == scores.array.shape == (len(scores.array), 1)
    return [text.decode("utf-8") for text in texts.array[:, 0]], scores.array[:, 0].tolist()


def test_requests_that_wait_together_get_what_the_runtime_gives(front: Any, tiny_portable_bundle: Path) -> None:
    beams = '{"beam_size": 4, "max_length": 12}'
    requests = [request(*TEXTS[:3]), request(TEXTS[3], options=beams), request(TEXTS[0], options=beams)]
    found = [answer(response) for response in front.execute(requests)]
    translator = Translator(tiny_portable_bundle)
    wide = translator.options({"beam_size": 4, "max_length": 12})
    plain, beamed = translator.translate(TEXTS[:3]), translator.translate([TEXTS[3], TEXTS[0]], wide)
    for (texts, scores), expected in zip(found, (plain, beamed[:1], beamed[1:]), strict=True):
        assert texts == [t.text for t in expected]
        assert scores == pytest.approx([t.best.score for t in expected], abs=1e-5)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (request("see " * 200), "tokens, the model takes"),
        (request("see", options="beam_size=4"), "must be a JSON object"),
        (request("see", options='{"beams": 4}'), "unknown generation option beams"),
        (request(b"\xff"), "must be UTF-8"),
    ],
)
def test_a_request_that_cannot_be_answered_leaves_the_others_alone(
    front: Any, bad: InferenceRequest, message: str
) -> None:
    good, failed = front.execute([request("ein hund"), bad])
    assert answer(good)[0] == answer(front.execute([request("ein hund")])[0])[0]
    assert message in failed.error.message()


def test_a_failure_of_the_server_reaches_the_client(front: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_server, "run", lambda *_: 1 / 0)
    with pytest.raises(triton_server.TritonModelException, match="division by zero"):
        front.execute([request("ein hund")])


@pytest.fixture(scope="session")
def schema() -> Any:
    """Of config.pbtxt, one file of the package of the server's clients; what a client needs beside it is not read."""
    package = importlib.util.find_spec("tritonclient")
    if package is None or package.submodule_search_locations is None:
        pytest.skip("needs the schema of config.pbtxt: make formats-test, or pip install --no-deps tritonclient")
    path = Path(package.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Protobuf gencode version", UserWarning)  # older than the library, and read
        spec.loader.exec_module(module)
    return module


def read_configs(repository: Path, schema: Any) -> dict[str, Any]:
    """By the names of the models. Those in ONNX are compared with their graphs."""
    from google.protobuf import text_format

    configs = {}
    for path in repository.glob("*/config.pbtxt"):
        config = text_format.Parse(path.read_text(encoding="utf-8"), schema.ModelConfig())
        assert config.name == path.parent.name
        configs[config.name] = config
        if config.platform == "onnxruntime_onnx":
            assert_like_graph(config, triton_server.session(path.parent / "1" / config.default_model_filename), schema)
    return configs


def test_the_configuration_is_one_that_the_server_reads_and_that_the_graphs_have(repository: Path, schema: Any) -> None:
    configs = read_configs(repository, schema)
    assert set(configs) == {"translator", "translator_encoder", "translator_decoder"}
    assert configs["translator_encoder"].HasField("dynamic_batching")
    assert not configs["translator_decoder"].HasField("dynamic_batching")
    assert [i.optional for i in configs["translator"].input] == [False, True]


def assert_like_graph(config: Any, session: onnxruntime.InferenceSession, schema: Any) -> None:
    inputs = [*session.get_inputs(), *session.get_overridable_initializers()]
    assert [i.optional for i in config.input] == [False] * len(session.get_inputs()) + [True] * (
        len(inputs) - len(session.get_inputs())
    )
    for described, real in ((config.input, inputs), (config.output, session.get_outputs())):
        assert [t.name for t in described] == [t.name for t in real]
        for ours, theirs in zip(described, real, strict=True):
            assert ONNX_TYPES[schema.DataType.Name(ours.data_type)] == theirs.type
            axes = [axis if isinstance(axis, int) else -1 for axis in theirs.shape]
            assert list(ours.dims) == axes[1 if config.max_batch_size else 0 :]


@pytest.fixture
def single(tiny_single_bundle: Path, tmp_path: Path) -> Path:
    assert package_triton(tiny_single_bundle, tmp_path) == ["translator"]
    return tmp_path


def test_the_configuration_of_a_single_graph_is_one_that_the_server_reads(single: Path, schema: Any) -> None:
    (config,) = read_configs(single, schema).values()
    assert config.max_batch_size == 0
    assert [i.name for i in config.input if i.optional] == ["options"]


def test_a_single_graph_is_one_model_that_takes_ids(single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_server, "repository", single)
    inputs = {
        "input_ids": np.array([[5, 20, 31, 2, 7]]),
        "attention_mask": np.ones((1, 5), np.int32),
        "beam_size": np.array([2]),
        "max_length": np.array([6]),
    }
    (lengths,) = triton_server.run("translator", ["lengths"], inputs)
    assert lengths.shape == (1, 2)


def test_each_graph_lies_beside_its_own_weights_only(repository: Path, tiny_portable_bundle: Path) -> None:
    whole = (tiny_portable_bundle / "weights.bin").stat().st_size
    sizes = [
        (repository / f"translator_{role}" / "1" / "weights.bin").stat().st_size for role in ("encoder", "decoder")
    ]
    assert max(sizes) < whole <= sum(sizes)
    assert not list((repository / "translator").rglob("*.bin"))


def test_models_that_are_there_are_replaced_only_by_force(
    tiny_portable_bundle: Path, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    assert package_triton(tiny_portable_bundle, tmp_path, "de_en") == ["de_en", "de_en_encoder", "de_en_decoder"]
    with pytest.raises(ExportError, match="is there already"):
        package_triton(tiny_portable_bundle, tmp_path, "de_en")
    package_triton(tiny_portable_bundle, tmp_path, "de_en", force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["de_en", "de_en_decoder", "de_en_encoder", "other"]


def test_a_cache_in_place_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="--ops portable"):
        package_triton(tiny_bundle, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_name_is_no_path(tiny_portable_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="--name takes letters"):
        package_triton(tiny_portable_bundle, tmp_path / "models", "../translator")
