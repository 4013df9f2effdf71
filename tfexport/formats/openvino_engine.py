"""Bundles of standard ONNX operators in OpenVINO: Intel's engine for its processors, graphics and NPUs.

Not a format of its own: it reads what `--ops portable` writes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfexport_runtime.bundle import Bundle
from tfexport_runtime.cache import Array
from tfexport_runtime.errors import BundleError, OptionError, UnavailableError
from tfexport_runtime.graph_pair import GrowingModel
from tfexport_runtime.session import SessionOptions, available_cores


def open_model(bundle: Bundle, options: SessionOptions) -> GrowingModel:
    """Raises BundleError for graphs that it cannot read, OptionError, UnavailableError where OpenVINO is missing."""
    manifest = bundle.manifest
    if manifest.graph_format != "onnx" or manifest.operators != "portable" or manifest.cache.form != "growing":
        raise BundleError(f"{bundle.origin}: OpenVINO runs standard operators only; export with --ops portable")
    if options.provider != "cpu":
        raise OptionError("OpenVINO runs on the processor here; leave out --provider")
    try:
        import openvino
    except ImportError as error:
        raise UnavailableError('OpenVINO is not installed; run: pip install "tfexport[openvino]"') from error
    core = openvino.Core()
    encoder, decoder = (
        OpenVinoGraph(core, bundle.path(manifest.graphs[name].file), options) for name in ("encoder", "decoder")
    )
    return GrowingModel(manifest, encoder, decoder)


class OpenVinoGraph:
    """One graph, compiled; each thread that runs it has a request of its own."""

    def __init__(self, core: Any, path: Path, options: SessionOptions) -> None:
        settings = {
            "INFERENCE_NUM_THREADS": options.threads or max(1, available_cores() // options.parallel_batches),
            "INFERENCE_PRECISION_HINT": "f32",  # by default some processors compute in bfloat16
            # The compiler of fused attention gives wrong numbers in version 2026.4 where the number of keys varies
            # and is 8 or more, on processors with AVX2.
            "SNIPPETS_MODE": "DISABLE",
        }
        try:
            self._compiled = core.compile_model(core.read_model(path), "CPU", settings)
        except RuntimeError as error:
            raise BundleError(f"{path}: OpenVINO cannot load this graph: {str(error).splitlines()[0]}") from error
        self._local = threading.local()

    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Array]:
        """Inputs are read where they lie; outputs are copied, as the next run writes over them."""
        from openvino import Tensor

        request = getattr(self._local, "request", None)
        if request is None:
            request = self._local.request = self._compiled.create_infer_request()
        held = {name: np.ascontiguousarray(array) for name, array in input_feed.items()}
        for name, array in held.items():
            request.set_tensor(name, Tensor(array, shared_memory=array.size > 0))
        request.infer()
        return [request.get_tensor(name).data.copy() for name in output_names]
