"""Products in 8 bits that give the same tokens everywhere: no float32 sum is left, and the outputs stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from tests.export.conftest import FORMS
from tests.export.test_passes import graph, run
from tfexport.errors import ExportError
from tfexport.export import ExportOptions, export_bundle
from tfexport.formats.onnx_pair import rounded_once
from tfexport.formats.read_graph import read_graph
from tfexport.passes.attention_output import AttentionChoice, attention_output
from tfexport.passes.double_sums import rough_operators
from tfexport.passes.quantise_int8 import Int8Form, quantise_int8
from tfexport.passes.written_erf import written_erf
from tfexport_runtime.bundle import Bundle
from tfexport_train.checkpoint import Checkpoint

SENTENCES, BEAMS, SOURCE, CAPACITY = 2, 3, 5, 9
LENGTHS = np.array([4, 2, 0, 6, 6, 3], np.int32)  # of the rows' caches


def inputs_of(model: ir.Model) -> dict[str, np.ndarray]:
    """Random ones for either graph. Behind the tokens of a row the cache holds what is no number."""
    generator = np.random.default_rng(3)
    mask = np.ones((SENTENCES, SOURCE), np.int32)
    mask[1, 3:] = 0
    known = {
        "past_lengths": LENGTHS,
        "total_length": np.array([LENGTHS.max() + 1], np.int32),
        "attention_mask": mask,
        "encoder_attention_mask": mask,
        "num_candidates": np.array([4]),
    }
    axes = {"batch": SENTENCES, "rows": SENTENCES * BEAMS, "source": SOURCE, "capacity": CAPACITY}
    inputs = {}
    for value in model.graph.inputs:
        assert value.name is not None
        assert value.shape is not None
        shape = [axes[str(size)] if isinstance(size, ir.SymbolicDim) else size for size in value.shape]
        if value.name in known:
            inputs[value.name] = known[value.name]
        elif value.dtype == ir.DataType.INT64:
            inputs[value.name] = generator.integers(4, 100, shape)
        else:
            inputs[value.name] = generator.standard_normal(shape).astype(np.float32)
        if "decoder" in value.name:
            for row, length in enumerate(LENGTHS):
                inputs[value.name][row, :, length:] = np.nan
    return inputs


def optimised(model: ir.Model, folder: Path) -> ir.Model:
    """As ONNX Runtime runs it, after its own fusions."""
    settings = onnxruntime.SessionOptions()
    settings.optimized_model_filepath = str(folder / "optimised.onnx")
    settings.log_severity_level = 3
    settings.add_session_config_entry("optimization.disable_specified_optimizers", "SkipLayerNormFusion")
    content = ir.to_proto(model).SerializeToString()
    onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    return ir.load(folder / "optimised.onnx")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_the_outputs_stay_and_no_rough_operator_is_left(
    form: str, part: str, bundle_of: Callable[[str, str], Bundle], tmp_path: Path
) -> None:
    before = ir.external_data.load_to_model(read_graph(bundle_of(form, "ort"), part))
    inputs = inputs_of(before)
    expected = run(before, **inputs)
    after = rounded_once(before)
    for found, wanted, value in zip(run(after, **inputs), expected, after.graph.outputs, strict=True):
        if str(value.name).startswith("present") and "decoder" in str(value.name):
            for row, length in enumerate(LENGTHS):  # what lay behind is nobody's business
                np.testing.assert_allclose(found[row, :, : length + 1], wanted[row, :, : length + 1], atol=1e-5)
        else:
            np.testing.assert_allclose(found, wanted, atol=1e-5 * max(1.0, np.abs(wanted).max()))
    in_integers, _ = quantise_int8(after, lambda weight: False, Int8Form())
    assert rough_operators(in_integers) == []
    assert rough_operators(optimised(in_integers, tmp_path)) == []


def test_attention_that_is_given_out_stays_float32(
    checkpoint_of: Callable[[str], Checkpoint], bundle_of: Callable[[str, str], Bundle]
) -> None:
    decoder = ir.external_data.load_to_model(read_graph(bundle_of("paper", "ort"), "decoder"))
    before = attention_output(decoder, checkpoint_of("paper").config, AttentionChoice(layers=(0, 1)))
    inputs = inputs_of(before)
    expected = run(before, **inputs)[-2:]
    for found, wanted in zip(run(rounded_once(before), **inputs)[-2:], expected, strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, atol=1e-6)
        np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)


def test_a_graph_as_it_was_traced_has_rough_operators(bundle_of: Callable[[str, str], Bundle]) -> None:
    in_integers, _ = quantise_int8(read_graph(bundle_of("gelu", "ort"), "decoder"), lambda weight: False, Int8Form())
    found = rough_operators(in_integers)
    assert {"GroupQueryAttention", "LayerNormalization", "FusedMatMul", "Softmax", "Erf"} <= set(found)


ERROR_FUNCTION = """
<ir_version: 9, opset_import: ["" : 18]>
g (float[n] x) => (float[n] y) { y = Erf(x) }
"""


def test_the_error_function_is_written_out() -> None:
    x = np.linspace(-6, 6, 1001, dtype=np.float32)
    model, modified = written_erf(graph(ERROR_FUNCTION))
    assert modified
    np.testing.assert_allclose(run(model, x=x)[0], [math.erf(value) for value in x], atol=4e-7)
    assert written_erf(model)[1] is False


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "fp32"}, "--reproducible is of int8"),
        ({"precision": "int4"}, "--reproducible is of int8"),
        ({"precision": "int8", "keep_float": ("*.up.*",)}, "leave out --keep-float"),
        ({"precision": "int8", "format": "single"}, "formats onnx and ort"),
    ],
)
def test_what_cannot_be_reproducible_is_refused(
    changes: dict[str, object], message: str, tiny_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message):
        export_bundle(tiny_checkpoint, tmp_path / "b", ExportOptions(reproducible=True, **changes))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
