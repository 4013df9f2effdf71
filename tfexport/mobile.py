"""Would the accelerators of phones take the graphs of a bundle? What ONNX Runtime's own checker says.

It looks at operators and shapes by its tables of what NNAPI and Core ML take; no phone is asked.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx_ir as ir

from tfexport.errors import ExportError
from tfexport.formats.read_graph import is_readable, read_graph
from tfexport_runtime.bundle import Bundle


@dataclass(frozen=True)
class MobileVerdict:
    """One graph and one accelerator."""

    graph: str
    provider: str
    verdict: str  # of the checker: yes, maybe or no
    nodes: int
    taken: int  # by the accelerator; the processor runs the others
    partitions: int  # pieces that it would run: between two of them everything is copied
    unsupported: tuple[str, ...]  # operators that it does not take
    unchecked: tuple[str, ...]  # limits of operators that it takes, which the checker does not look at
    advice: str  # in the checker's words
    taken_if_fixed: int | None  # where shapes are open: as `taken`, if they were numbers


def mobile_verdicts(bundle: Bundle) -> list[MobileVerdict]:
    """Raises ExportError for a bundle whose graphs ONNX Runtime does not run."""
    found = []
    for name, info in bundle.manifest.graphs.items():
        if not is_readable(bundle, name):
            raise ExportError(
                f"--mobile looks at graphs of ONNX Runtime, and {info.file} is for another engine: leave it out"
            )
        with tempfile.TemporaryDirectory(prefix="tfexport-mobile-") as folder:
            model = _as_the_phone_gets_it(read_graph(bundle, name), Path(folder))
        found += [_verdict(name, provider, check, model) for provider, check in _checks().items()]
    return found


def _checks() -> dict[str, Callable[[Any, bool], Any]]:
    """By accelerator: (model, whether only nodes with numbers for shapes count) -> the checker's PartitioningInfo."""
    from onnxruntime.tools.mobile_helpers import usability_checker as checker

    neural_network, program = (f"coreml_supported_{kind}_ops.md" for kind in ("neuralnetwork", "mlprogram"))
    return {
        "NNAPI": checker.check_nnapi_partitions,
        "Core ML NeuralNetwork": partial(checker.check_coreml_partitions, config_filename=neural_network),
        "Core ML MLProgram": partial(checker.check_coreml_partitions, config_filename=program),
    }


def _as_the_phone_gets_it(graph: ir.Model, folder: Path) -> Any:
    """With what ONNX Runtime simplifies before it gives nodes away, and the shape of every value: a ModelProto."""
    from onnxruntime.tools.onnx_model_utils import ModelProtoWithShapeInfo, optimize_model

    written, simplified = folder / "written.onnx", folder / "simplified.onnx"
    ir.save(graph, written, external_data="weights.bin")
    optimize_model(written, simplified, use_external_initializers=True)
    return ModelProtoWithShapeInfo(simplified).model_with_shape_info


def _verdict(graph: str, provider: str, check: Callable[[Any, bool], Any], model: Any) -> MobileVerdict:
    info = check(model, True)
    is_open = any(not axis.HasField("dim_value") for value in model.graph.input for axis in _axes(value))
    return MobileVerdict(
        graph=graph,
        provider=provider,
        verdict=info.suitability().name.lower(),
        nodes=info.num_nodes,
        taken=info.num_supported_nodes,
        partitions=info.num_partitions,
        unsupported=tuple(sorted(_short(name) for name in info.unsupported_ops)),
        unchecked=tuple(_short(text) for text in info.supported_ops_checker.get_caveats()),
        advice=_advice(info, provider),
        taken_if_fixed=check(model, False).num_supported_nodes if is_open else None,
    )


def _axes(value: Any) -> Any:
    return value.type.tensor_type.shape.dim


def _short(name: str) -> str:
    return name.removeprefix("ai.onnx:")


def _advice(info: Any, provider: str) -> str:
    """The last thing that the checker has to say of its own findings."""
    said = _Said()
    logger = logging.Logger("tfexport.mobile", logging.INFO)  # of its own: the real tree stays as it is
    logger.addHandler(said)
    info.print_analysis(logger, provider)
    return said.messages[-1].strip() if said.messages else ""


class _Said(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
