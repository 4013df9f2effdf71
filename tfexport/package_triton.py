"""A bundle as a model repository of Triton Inference Server. No server was at hand to try it: see docs/triton.md."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

from tfexport.errors import ExportError
from tfexport.weights import write_shared_weights
from tfexport_runtime.bundle import MANIFEST_NAME, Bundle, read_bundle
from tfexport_runtime.manifest import GraphInfo, TensorInfo, is_file_name
from tfexport_runtime.triton_front import DECODER, ENCODER, OPTIONS, SCORE, TEXT, TRANSLATION

VERSION = "1"
_TYPES = {
    "float32": "TYPE_FP32",
    "float16": "TYPE_FP16",
    "bfloat16": "TYPE_BF16",
    "int64": "TYPE_INT64",
    "int32": "TYPE_INT32",
    "int8": "TYPE_INT8",
    "uint8": "TYPE_UINT8",
    "bool": "TYPE_BOOL",
}
_TOGETHER = "dynamic_batching { }\n"  # the server puts requests together that wait at the same time

_FRONT = '''"""The front of the translator: see tfexport_runtime.triton_front."""

import triton_python_backend_utils as pb_utils
from tfexport_runtime.triton_front import Front


class TritonPythonModel:
    def initialize(self, args):
        self.front = Front(pb_utils, args)

    def execute(self, requests):
        return self.front.execute(requests)
'''


def package_triton(path: Path, repository: Path, name: str = "translator", force: bool = False) -> list[str]:
    """Adds models to a repository and returns their names. Raises BundleError, ExportError.

    Of a pair: a front in Python, which takes and gives strings, and the two graphs that it calls. Of a single graph:
    that one, which takes and gives ids.
    """
    bundle = read_bundle(path)
    names = _model_names(bundle, name)
    _check(bundle, repository, names, force)
    repository.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", suffix=".tmp", dir=repository) as folder:
        for model in names:
            (Path(folder) / model / VERSION).mkdir(parents=True)
        if bundle.manifest.graph_format == "single":
            _write_search(bundle, Path(folder) / name)
        else:
            _write_front(bundle, Path(folder) / name)
            for role in ("encoder", "decoder"):
                _write_graph(bundle, role, Path(folder) / f"{name}_{role}")
        for model in names:
            if (repository / model).exists():
                shutil.rmtree(repository / model)
            (Path(folder) / model).rename(repository / model)
    return names


def _model_names(bundle: Bundle, name: str) -> list[str]:
    return [name] if bundle.manifest.graph_format == "single" else [name, name + ENCODER, name + DECODER]


def _check(bundle: Bundle, repository: Path, names: Sequence[str], force: bool) -> None:
    manifest = bundle.manifest
    if not is_file_name(names[0]):
        raise ExportError(f"--name takes letters, digits, dots, dashes and underscores, not {names[0]!r}")
    if manifest.graph_format not in ("onnx", "single"):
        raise ExportError(f"{bundle.origin}: of format {manifest.graph_format}; export it with --format onnx or single")
    if manifest.cache.form != "growing":
        raise ExportError(
            f"{bundle.origin}: its cache is {manifest.cache.form}, which a server cannot hand from step to step; "
            "export it with --ops portable, or with --format single"
        )
    if not force and (there := [name for name in names if (repository / name).exists()]):
        raise ExportError(f"{repository / there[0]}: is there already; choose another --name, or allow it with --force")


def _write_search(bundle: Bundle, model: Path) -> None:
    """The graph as it is. Its requests cannot be put together: beam size and limit are those of a whole call."""
    graph = bundle.manifest.graphs["search"]
    for file in (graph.file, *bundle.manifest.weights):
        shutil.copyfile(bundle.path(file), model / VERSION / file)
    _write_config(model, _onnx(graph), _tensors(graph, batched=False, optional={"options"}))


def _write_graph(bundle: Bundle, role: str, model: Path) -> None:
    """With its own weights only: the server gives each model a folder of its own."""
    graph = bundle.manifest.graphs[role]
    read = ir.load(bundle.path(graph.file))
    write_shared_weights([read], model / VERSION)
    ir.save(read, model / VERSION / graph.file)
    if role == "decoder":  # its inputs begin with different axes: rows, sentences, none
        _write_config(model, _onnx(graph), _tensors(graph, batched=False))
    else:
        largest = bundle.manifest.default_options().max_batch_tokens  # no batch has more sentences
        _write_config(model, _onnx(graph, largest), _tensors(graph, batched=True), _TOGETHER)


def _write_front(bundle: Bundle, model: Path) -> None:
    """model.py with what it reads: the manifest and the tokenizers."""
    manifest = bundle.manifest
    for file in {MANIFEST_NAME, manifest.source.tokenizer.file, manifest.target.tokenizer.file}:
        shutil.copyfile(bundle.folder / file, model / VERSION / file)
    (model / VERSION / "model.py").write_text(_FRONT, encoding="utf-8")
    tensors = [
        *(_tensor("input", name, "TYPE_STRING", [1], optional=name == OPTIONS) for name in (TEXT, OPTIONS)),
        _tensor("output", TRANSLATION, "TYPE_STRING", [1]),
        _tensor("output", SCORE, "TYPE_FP32", [1]),
    ]
    head = 'backend: "python"\nmax_batch_size: 64\n'
    _write_config(model, head, tensors, _TOGETHER, "instance_group [ { count: 1, kind: KIND_CPU } ]\n")


def _write_config(model: Path, head: str, tensors: Sequence[str], *settings: str) -> None:
    text = "".join([f'name: "{model.name}"\n', head, *tensors, *settings])
    (model / "config.pbtxt").write_text(text, encoding="utf-8")


def _onnx(graph: GraphInfo, largest_batch: int = 0) -> str:
    """0: the first axis of a tensor is no batch."""
    return f'platform: "onnxruntime_onnx"\ndefault_model_filename: "{graph.file}"\nmax_batch_size: {largest_batch}\n'


def _tensors(graph: GraphInfo, batched: bool, optional: frozenset[str] | set[str] = frozenset()) -> list[str]:
    """batched: the first axis of all of them is not written."""

    def written(kind: str, tensor: TensorInfo) -> str:
        axes = [axis if isinstance(axis, int) else -1 for axis in tensor.shape]
        return _tensor(kind, tensor.name, _TYPES[tensor.type], axes[batched:], tensor.name in optional)

    return [written("input", t) for t in graph.inputs] + [written("output", t) for t in graph.outputs]


def _tensor(kind: str, name: str, data_type: str, axes: Sequence[int], optional: bool = False) -> str:
    last = ", optional: true" if optional else ""
    return f'{kind} [ {{ name: "{name}", data_type: {data_type}, dims: {list(axes)}{last} }} ]\n'
