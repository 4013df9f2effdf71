"""What every format of graphs does: write them, and open them again for the check against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from tfexport_runtime.manifest import CacheInfo, GraphInfo, Requirements, TensorInfo

if TYPE_CHECKING:
    from tfexport.export import ExportOptions
    from tfexport.graphs.signature import GraphSignature
    from tfexport.layer_noise import FloatWeights
    from tfexport.precision import PrecisionChoice
    from tfexport_runtime.bundle import Bundle
    from tfexport_runtime.search import Model
    from tfexport_runtime.session import SessionOptions
    from tfexport_train.checkpoint import Checkpoint
    from tfexport_train.model import EncoderDecoder


@dataclass(frozen=True)
class Work:
    """What a format writes, and where."""

    checkpoint: Checkpoint
    model: EncoderDecoder  # of the checkpoint, in evaluation mode
    options: ExportOptions
    choice: PrecisionChoice
    folder: Path  # of the bundle
    progress: Callable[[str], None]  # hears the name of each stage


@dataclass(frozen=True)
class Written:
    """What the manifest says of the graphs that were written."""

    graphs: Mapping[str, GraphInfo]
    weights: Sequence[str]  # files of external data
    cache: CacheInfo
    requirements: Requirements
    opset: int = 0  # 0: not ONNX
    ir_version: int = 0
    operators: Literal["ort", "portable"] | None = None  # None: those that were asked for
    remarks: tuple[str, ...] = ()  # what the user should know of how it was done
    float_weights: FloatWeights | None = None  # before a reduced precision was applied


class Format(Protocol):
    """A module of this package."""

    def write(self, work: Work) -> Written:
        """Writes the graphs into the folder. Raises ExportError, before any work, for what it cannot do."""


class EngineFormat(Format, Protocol):
    """One that ONNX Runtime does not run."""

    def open_model(self, bundle: Bundle, options: SessionOptions) -> Model:
        """The graphs as a model that decodes by steps, or searches by itself. Raises BundleError, UnavailableError."""


def graph_info(file: str, signature: GraphSignature) -> GraphInfo:
    inputs, outputs = (
        tuple(TensorInfo(t.name, t.dtype, t.shape) for t in tensors)  # type: ignore[arg-type]
        for tensors in (signature.inputs, signature.outputs)
    )
    return GraphInfo(file, inputs, outputs)
