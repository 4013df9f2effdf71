"""Every format by its name in the manifest. Its module is imported when it is used: some need packages of their own."""

from __future__ import annotations

import importlib
from typing import cast

from tfexport.formats.format import EngineFormat, Format
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.manifest import GraphFormat
from tfexport_runtime.search import Model
from tfexport_runtime.session import FORMATS, SessionOptions, open_model

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
    return cast(Format, _module(name))


def open_any(bundle: Bundle, options: SessionOptions) -> Model:
    """The graphs of a bundle in the engine of their format. Raises BundleError, OptionError, UnavailableError."""
    if bundle.manifest.graph_format in FORMATS:
        return open_model(bundle, options)  # without the packages that write it
    return cast(EngineFormat, _module(bundle.manifest.graph_format)).open_model(bundle, options)


def _module(name: GraphFormat) -> object:
    return importlib.import_module(f"tfexport.formats.{_MODULES[name]}")
