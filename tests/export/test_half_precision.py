"""float16 graphs: close to float32, and never infinite where float32 is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from tests.export.test_passes import graph, run
from tfexport.export import ExportOptions, export_bundle
from tfexport.passes.half_precision import half_precision
from tfexport_runtime.bundle import read_bundle
from tfexport_runtime.session import SessionOptions, open_model
from tfexport_train.checkpoint import Checkpoint

UP, DOWN = "encoder_layers.0.feed_forward.up.weight", "encoder_layers.0.feed_forward.down.weight"


KEY = "present.0.decoder.key"  # a cache; not a name in the text form
TEXT = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[rows, 4] x) => (float[rows, 3] logits, float[rows, 8] key) {
    hidden = MatMul(x, W)
    key = Relu(hidden)
    y = MatMul(key, V)
    logits = Add(y, mask)
}
"""


def graph_of(weight: float) -> ir.Model:
    """logits = relu(x W) V + mask"""
    model = graph(
        TEXT,
        W=np.full((4, 8), weight, np.float32),
        V=np.full((8, 3), 1 / weight, np.float32),
        mask=np.array([0, 0, -1e9], np.float32),
    )
    model.graph.outputs[1].name = KEY
    for node in model.graph:
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    return model


X = np.array([[1, 2, 3, 4], [0.5, 0.25, 0.125, 1]], np.float32)


def test_caches_are_half_and_logits_stay_float32() -> None:
    halved, kept = half_precision(graph_of(0.5), lambda weight: False, {})
    logits, key = run(halved, x=X)
    assert (logits.dtype, key.dtype, kept) == (np.float32, np.float16, ())
    np.testing.assert_allclose(logits[:, :2], run(graph_of(0.5), x=X)[0][:, :2], rtol=2e-3)
    assert {v.dtype for v in halved.graph.initializers.values()} == {ir.DataType.FLOAT16}


def test_a_mask_beyond_the_range_stays_finite_and_hides() -> None:
    logits, _ = run(half_precision(graph_of(0.5), lambda weight: False, {})[0], x=X)
    assert np.isfinite(logits).all()
    assert (logits[:, 2] < -60000).all()


def test_products_that_overflow_are_named_and_stay_in_float32() -> None:
    model = graph_of(9000.0)
    halved, kept = half_precision(model, lambda weight: False, {"hidden": 90000.0, KEY: 90000.0})
    assert kept == ("V", "W")
    np.testing.assert_allclose(run(halved, x=X)[0][:, :2], run(graph_of(9000.0), x=X)[0][:, :2], rtol=2e-3)


def test_weights_that_are_asked_for_stay_in_float32() -> None:
    halved, kept = half_precision(graph_of(0.5), lambda weight: weight.name == "W", {})
    kinds = {name: value.dtype for name, value in halved.graph.initializers.items()}
    assert kinds["W"] == ir.DataType.FLOAT
    assert kept == ()  # nothing was too large


def large_activations(checkpoint: Checkpoint) -> Checkpoint:
    """The same function (ReLU is homogeneous), with numbers above 65504 in one layer."""
    weights = dict(checkpoint.weights)
    scale = 2.0**20
    for name, factor in ((UP, scale), (UP.replace("weight", "bias"), scale), (DOWN, 1 / scale)):
        weights[name] = weights[name] * factor
    return replace(checkpoint, weights=weights)


def test_bundle_of_a_model_that_overflows_gives_the_float32_tokens(
    checkpoint_of: Callable[[str], Checkpoint], tmp_path: Path
) -> None:
    report = export_bundle(large_activations(checkpoint_of("paper")), tmp_path / "b", ExportOptions(precision="fp16"))
    named = report.remarks[0].partition(": ")[2].split(", ")
    assert sorted(named) == sorted([UP, DOWN])  # and nothing else, masks above all
    other_tokens = [row for row in report.parity.rows if "other tokens" in row.name]
    assert all(row.difference <= 0.1 * row.compared for row in other_tokens)
    assert report.parity.rows[0].difference < 0.01  # noise over signal of the logits
    model = open_model(read_bundle(tmp_path / "b"), SessionOptions(threads=1))
    cache = model.start([[5, 6]], 1)  # type: ignore[union-attr]
    assert cache.memory.cross[0].dtype == np.float16
