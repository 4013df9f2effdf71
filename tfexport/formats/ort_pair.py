"""The two graphs in ONNX Runtime's own file format, which builds with few operators read: phones, small devices.

What a build must hold is in `required_operators.config`, an input of ONNX Runtime's own build script; see
docs/reduced-build.md. The format keeps no data outside, so what both graphs read is stored twice.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from tfexport.errors import ExportError
from tfexport.formats import onnx_pair
from tfexport.formats.format import Work, Written

OPERATORS_FILE = "required_operators.config"
MAX_BYTES = 2**31 - 1  # of a file: offsets in it are 32 bits with a sign


def write(work: Work) -> Written:
    with tempfile.TemporaryDirectory(prefix=".ort.", dir=work.folder.parent) as folder:
        written = onnx_pair.write(replace(work, folder=Path(folder)))
        work.progress("convert")
        graphs = {name: replace(info, file=f"{name}.ort") for name, info in written.graphs.items()}
        for name, info in written.graphs.items():
            # Operators of ONNX Runtime come in with its fusions: not where standard ones are asked for.
            _convert(Path(folder) / info.file, work.folder / graphs[name].file, work.options.operators == "ort")
    _write_operators([work.folder / info.file for info in graphs.values()], work.folder / OPERATORS_FILE)
    return replace(written, graphs=graphs, weights=[])


def _convert(source: Path, target: Path, fused: bool) -> None:
    """Optimised up to what is the same on every processor: no blocked layouts, no weights packed for one."""
    import onnxruntime

    size = sum(value.const_value.nbytes for value in ir.load(source).graph.initializers.values() if value.const_value)
    if size > MAX_BYTES:
        raise ExportError(f"the format ort takes 2 GiB of weights in a graph at most, not {size}: choose --format onnx")
    levels = onnxruntime.GraphOptimizationLevel
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = levels.ORT_ENABLE_EXTENDED if fused else levels.ORT_ENABLE_BASIC
    settings.optimized_model_filepath = str(target)
    settings.log_severity_level = 3
    settings.add_session_config_entry("session.save_model_format", "ORT")
    # As in the runtime: nothing is optimised when such a file is loaded.
    settings.add_session_config_entry("optimization.disable_specified_optimizers", "SkipLayerNormFusion")
    onnxruntime.InferenceSession(str(source), settings, providers=["CPUExecutionProvider"])


def _write_operators(graphs: Iterable[Path], target: Path) -> None:
    """Every operator by domain and version, with the types that it is used with, as ONNX Runtime's build reads them."""
    from onnxruntime.tools.ort_format_model import OperatorTypeUsageManager, OrtFormatModelProcessor

    required: dict[str, dict[int, set[str]]] = {}
    types = OperatorTypeUsageManager()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it does not close the files that it reads
        for graph in graphs:
            OrtFormatModelProcessor(str(graph), required, types).process()
    lines = ["# For ONNX Runtime's build.py --include_ops_by_config\n"]
    for domain, versions in sorted(required.items()):
        for version, names in sorted(versions.items()):
            operators = (name + (types.get_config_entry(domain, name) or "") for name in sorted(names))
            lines.append(f"{domain};{version};{','.join(operators)}\n")
    target.write_text("".join(lines), encoding="utf-8")
