"""Which precision suits the place where a bundle will run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfexport.errors import ExportError

Precision = Literal["fp32", "fp16", "int8", "int8-weight", "int4"]
"""fp16: half the bytes, for GPUs; processors compute it in float32. int8: products in 8 bits, weights by column and
activations by row. int8-weight, int4: weights in blocks of 32."""

Platform = Literal["cpu", "web", "arm", "cuda"]
"""cpu: processors in general; web: WebAssembly; arm: 64-bit Arm only; cuda: NVIDIA GPUs."""


@dataclass(frozen=True)
class PrecisionChoice:
    """What a bundle is written in, and why in one line for people."""

    precision: Precision
    full_range: bool  # int8 weights to 127 instead of 63
    reason: str

    def __str__(self) -> str:
        return f"precision {self.precision}: {self.reason}"


_BEST: dict[Platform, PrecisionChoice] = {
    "cpu": PrecisionChoice("int8", False, "the fastest measured on processors; weights to 63, right without VNNI too"),
    "web": PrecisionChoice("int8", False, "the fastest measured there, where 4-bit blocks take 5 to 7 times longer"),
    "arm": PrecisionChoice("int8", True, "the fastest measured; weights to 127, as the sums of Arm cannot overflow"),
    "cuda": PrecisionChoice("fp16", False, "half the bytes, and what the cache in place takes there; not measured"),
}


def choose_precision(wanted: Precision | Literal["auto"], target: Platform | None, full_range: bool) -> PrecisionChoice:
    """auto: the best measured of the target, of processors in general where none is given.

    Raises ExportError for what would be slow or wrong on the target.
    """
    if target == "cuda" and wanted not in ("fp32", "fp16", "auto"):
        raise ExportError("for CUDA, products in 8 or 4 bits would run on the processor; choose --precision fp16")
    if target == "web" and wanted in ("int8-weight", "int4"):
        raise ExportError(
            f"{wanted} is many times slower than int8 in WebAssembly; choose --precision int8, "
            "or leave out --target to write it nevertheless"
        )
    if wanted == "auto":
        best = _BEST[target or "cpu"]
        return PrecisionChoice(best.precision, best.full_range or full_range, best.reason)
    if wanted == "int8" and target == "arm":
        return PrecisionChoice("int8", True, "as asked; weights to 127, as the sums of Arm cannot overflow")
    return PrecisionChoice(wanted, full_range, "as asked")


def check_operators(choice: PrecisionChoice, target: Platform | None, operators: str) -> None:
    """Raises ExportError where a precision or a target lacks the operators."""
    if operators == "portable" and choice.precision not in ("fp32", "fp16"):
        raise ExportError(
            f"{choice.precision} needs ONNX Runtime's operators; leave --ops at ort, or choose --precision fp32"
        )
    if target == "cuda" and operators == "ort" and choice.precision != "fp16":
        raise ExportError(
            "for CUDA the cache in place takes half precision only; choose --precision fp16, or --ops portable"
        )
