"""A bundle in ONNX Runtime's own file format, made from one in ONNX without tracing it again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import onnxruntime

from tfexport_runtime.bundle import describe_files, read_bundle, write_manifest


def write_ort_bundle(bundle: Path, target: Path) -> None:
    """Optimised like `tfexport export --format ort`."""
    shutil.copytree(bundle, target)
    manifest = read_bundle(bundle).manifest
    for name, graph in manifest.graphs.items():
        settings = onnxruntime.SessionOptions()
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        settings.optimized_model_filepath = str(target / f"{name}.ort")
        settings.add_session_config_entry("session.save_model_format", "ORT")
        onnxruntime.InferenceSession(str(bundle / graph.file), settings, providers=["CPUExecutionProvider"])
    for name in {*manifest.weights, *(graph.file for graph in manifest.graphs.values())}:
        (target / name).unlink()
    graphs = {name: replace(graph, file=f"{name}.ort") for name, graph in manifest.graphs.items()}
    files = describe_files(target)
    write_manifest(target, replace(manifest, graphs=graphs, weights=(), graph_format="ort", files=files))
