"""Every format by its name in the manifest. Its module is imported when it is used: some need packages of their own."""

from __future__ import annotations

import importlib
from typing import cast

from tfexport.formats.format import Format
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.manifest import GraphFormat
from tfexport_runtime.search import Model
from tfexport_runtime.session import SessionOptions

_MODULES: dict[GraphFormat, str] = {
    "onnx": "onnx_pair",
    "ort": "ort_pair",
    "single": "single",
    "torchscript": "torchscript",
    "torch-export": "torch_export",
    "aoti": "aoti",
    "executorch": "executorch",
}


def format_of(name: GraphFormat) -> Format:
    return cast(Format, importlib.import_module(f"tfexport.formats.{_MODULES[name]}"))


def open_any(bundle: Bundle, options: SessionOptions) -> Model:
    """The graphs of a bundle in the engine of their format. Raises BundleError, OptionError, UnavailableError."""
    return format_of(bundle.manifest.graph_format).open_model(bundle, options)
