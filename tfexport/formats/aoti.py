"""Two programs compiled to native code by AOTInductor: for processors like the one that compiled them."""

from __future__ import annotations

from typing import Any

import torch

from tfexport.errors import ExportError
from tfexport.formats.format import Work, Written
from tfexport.formats.torch_export import DECODER, ENCODER, export_programs, of_sentences
from tfexport.formats.torch_graphs import growing_model, quiet, step_signature, written
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.errors import BundleError
from tfexport_runtime.graph_pair import GrowingModel
from tfexport_runtime.session import SessionOptions

_SETTINGS = {"cpp.dynamic_threads": True}  # the caller decides, not the machine that compiled


def write(work: Work) -> Written:
    _check_compiler()
    programs = export_programs(work)
    work.progress("compile")
    for file, program in programs.items():
        with quiet():
            torch._inductor.aoti_compile_and_package(
                program, package_path=str(work.folder / file), inductor_configs=_SETTINGS
            )
    return written(work, ENCODER, DECODER, step_signature(work, sentences_and_beams=True))


def open_model(bundle: Bundle, options: SessionOptions) -> GrowingModel:
    """Raises BundleError for packages that do not load or have changed: they are native code, and loading runs it."""
    bundle.check_graphs()
    return growing_model(bundle, options, _load(bundle, ENCODER), of_sentences(_load(bundle, DECODER)))


def _check_compiler() -> None:
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        cpp_builder.get_cpp_compiler()
    except InvalidCxxCompiler:
        raise ExportError(
            "--format aoti needs a C++ compiler: install g++ or clang++, or name one in CXX; "
            "or choose --format torch-export"
        ) from None


def _load(bundle: Bundle, file: str) -> Any:
    path = bundle.path(file)
    try:
        with quiet():
            return torch._inductor.aoti_load_package(str(path))
    except Exception as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BundleError(f"{path}: torch {torch.__version__} cannot load this package: {problem}") from error
