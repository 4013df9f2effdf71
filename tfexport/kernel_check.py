"""Do the quantised kernels really run? A profile of ONNX Runtime says which operators did."""

from __future__ import annotations

import gc
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfexport.formats.read_graph import read_graph
from tfexport.operator_profile import OperatorTime, operator_times
from tfexport.passes.quantised_products import FLOAT_PRODUCTS, QuantisedProduct, quantised_products
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.search import WholeSearch
from tfexport_runtime.session import SessionOptions, open_model
from tfexport_runtime.step_model import StepModel

Events = Sequence[Mapping[str, Any]]
STEPS = 12  # of which the later half counts


@dataclass(frozen=True)
class FloatProduct:
    """A weight that is stored in integers and was multiplied in float."""

    graph: str
    operator: str
    weight: str

    def __str__(self) -> str:
        return f"{self.operator} with {self.weight} in the {self.graph}"


@dataclass(frozen=True)
class KernelReport:
    """What ran, on one sentence."""

    operators: tuple[OperatorTime, ...]  # of a decoding step, the longest first
    products: int  # with quantised weights, of both graphs
    in_float: tuple[FloatProduct, ...]  # those of them that should not have


def check_kernels(bundle: Bundle, source: Sequence[int]) -> KernelReport:
    """Runs the encoder and a few steps of one row on one thread, and reads the profile."""
    events = _profile(bundle, source)
    products, in_float = 0, []
    for name in bundle.manifest.graphs:
        found = list(quantised_products(read_graph(bundle, name)))
        products += len(found)
        in_float += products_in_float(name, found, events[name])
    return KernelReport(operator_times(events["decoder"]), products, tuple(in_float))


def products_in_float(graph: str, products: Sequence[QuantisedProduct], events: Events) -> list[FloatProduct]:
    """Those that ran as a product of floats, by their own name or under one that ONNX Runtime gave."""
    ran = {name: event["args"]["op_name"] for event in events if (name := _node_name(event)) is not None}
    written = {node.name for product in products[:1] if product.node.graph is not None for node in product.node.graph}
    made = [
        event["args"]["op_name"] for event in events if _is_matrix_product(event) and _node_name(event) not in written
    ]
    found = []
    for product in products:
        operator = ran.get(product.node.name or "") or (made.pop() if made else "")
        if operator in FLOAT_PRODUCTS:
            found.append(FloatProduct(graph, operator, product.weight))
    return found


def _node_name(event: Mapping[str, Any]) -> str | None:
    name = str(event.get("name"))
    return name.removesuffix("_kernel_time") if event.get("cat") == "Node" and name.endswith("_kernel_time") else None


def _is_matrix_product(event: Mapping[str, Any]) -> bool:
    """True for a product of floats whose second factor has two axes; those of attention have more."""
    if _node_name(event) is None or event["args"]["op_name"] not in FLOAT_PRODUCTS:
        return False
    inputs = event["args"].get("input_type_shape", [])
    return len(inputs) > 1 and all(kind == "float" and len(shape) == 2 for kind, shape in inputs[1].items())


def _profile(bundle: Bundle, source: Sequence[int]) -> dict[str, Events]:
    """By graph. A session writes its profile when it ends."""
    with tempfile.TemporaryDirectory() as folder:
        model = open_model(bundle, SessionOptions(threads=1, profile=str(Path(folder) / "profile")))
        assert not isinstance(model, WholeSearch)  # it has no reduced precision
        steps = min(STEPS, bundle.manifest.model.max_target_length)
        _take_steps(model, source, bundle.manifest.target.start_id, steps)
        del model
        gc.collect()
        files = {graph: next(Path(folder).glob(f"profile-{graph}*.json")) for graph in bundle.manifest.graphs}
        return {graph: json.loads(file.read_text(encoding="utf-8")) for graph, file in files.items()}


def _take_steps(model: StepModel[Any], source: Sequence[int], start_id: int, steps: int) -> None:
    cache = model.start([source], 1)
    for _ in range(steps):
        _, cache = model.step_logits(np.array([start_id]), cache)
