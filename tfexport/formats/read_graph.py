"""The graphs of a bundle to look into, whether ONNX or ONNX Runtime's own format holds them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx_ir as ir

from tfexport_runtime.bundle import Bundle


def is_readable(bundle: Bundle, name: str) -> bool:
    """Whether ONNX Runtime is the engine of that graph."""
    return bundle.manifest.graphs[name].file.endswith((".onnx", ".ort"))


def read_graph(bundle: Bundle, name: str) -> ir.Model:
    """The encoder, the decoder or the search as it is written."""
    return load_graph(bundle.path(bundle.manifest.graphs[name].file))


def load_graph(path: Path) -> ir.Model:
    """Of a file that is_readable. ONNX Runtime turns its own format into ONNX."""
    if path.suffix == ".onnx":
        return ir.load(path)
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    with tempfile.TemporaryDirectory(prefix="tfexport-graph-") as folder:
        copy = Path(folder) / "graph.onnx"
        settings.optimized_model_filepath = str(copy)
        onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
        return ir.load(copy)
