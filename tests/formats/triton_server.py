"""A stand-in for the module `triton_python_backend_utils`, which only exists inside of Triton Inference Server.

It runs the ONNX models of a repository in this process, by their config.pbtxt as far as that says which file, which
tensors and how large a batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

TRITONSERVER_MEMORY_CPU = "CPU"
repository = Path()  # of models; set by the test


class TritonModelException(Exception):  # noqa: N818  (its name in the server)
    pass


@dataclass(frozen=True)
class TritonError:
    text: str

    def message(self) -> str:
        return self.text


@dataclass(frozen=True)
class PreferredMemory:
    kind: str


@dataclass(frozen=True)
class Tensor:
    name: str
    array: npt.NDArray[Any]

    def as_numpy(self) -> npt.NDArray[Any]:
        return self.array


@dataclass(frozen=True)
class InferenceResponse:
    output_tensors: Sequence[Tensor] = ()
    error: TritonError | None = None  # type: ignore[assignment]

    def has_error(self) -> bool:
        return self.error is not None


@dataclass(frozen=True)
class InferenceRequest:
    inputs: Sequence[Tensor]
    model_name: str = ""
    requested_output_names: Sequence[str] = field(default_factory=list)
    preferred_memory: PreferredMemory | None = None

    def exec(self) -> Any:
        try:
            arrays = run(self.model_name, self.requested_output_names, {t.name: t.array for t in self.inputs})
        except Exception as error:  # noqa: BLE001  (the server gives every failure back as an error)
            return _Failed(TritonError(str(error)))
        return InferenceResponse([Tensor(n, a) for n, a in zip(self.requested_output_names, arrays, strict=True)])


@dataclass(frozen=True)
class _Failed:
    why: TritonError

    def has_error(self) -> bool:
        return True

    def error(self) -> TritonError:
        return self.why


def get_input_tensor_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    return next((tensor for tensor in request.inputs if tensor.name == name), None)


def get_output_tensor_by_name(response: InferenceResponse, name: str) -> Tensor | None:
    return next((tensor for tensor in response.output_tensors if tensor.name == name), None)


def run(model: str, names: Sequence[str], inputs: dict[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    config = (repository / model / "config.pbtxt").read_text(encoding="utf-8")
    largest = int(re.findall(r"max_batch_size: (\d+)", config)[0])
    assert not largest or all(len(array) <= largest for array in inputs.values()), "the batch is too large"
    (file,) = re.findall(r'default_model_filename: "(.*)"', config)
    found: list[npt.NDArray[Any]] = session(repository / model / "1" / file).run(list(names), inputs)
    return found


@cache
def session(path: Path) -> onnxruntime.InferenceSession:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])


def strings(*values: str | bytes) -> npt.NDArray[np.object_]:
    """[rows, 1], as a client sends them."""
    return np.array([[v.encode("utf-8") if isinstance(v, str) else v] for v in values], np.object_)
