"""Reduced precisions: what they change, how rough they are, and that a row never depends on its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest

from tests.export.test_passes import graph, run
from tfexport.errors import ExportError, ParityError
from tfexport.export import ExportOptions, export_bundle
from tfexport.passes.merge_products import merge_products
from tfexport.passes.quantise_blocks import pack_blocks, quantise_blocks
from tfexport.passes.quantise_int8 import REDUCED_RANGE, Int8Form, quantise_columns, quantise_int8
from tfexport.passes.quantised_products import quantised_products
from tfexport.passes.split_bias import split_bias
from tfexport.weights import write_shared_weights
from tfexport_train.checkpoint import Checkpoint

Pass = Callable[[ir.Model], tuple[ir.Model, bool]]

GENERATOR = np.random.default_rng(0)
TABLE = GENERATOR.standard_normal((70, 64)).astype(np.float32)
WEIGHT = GENERATOR.standard_normal((64, 64)).astype(np.float32)
IDS = np.array([3, 0, 6, 69, 12])
EXPECTED = TABLE[IDS] @ WEIGHT @ TABLE.T

TEXT = """
<ir_version: 10, opset_import: ["" : 18]>
g (int64[n] ids) => (float[n, 70] logits) {
    x = Gather(table, ids)
    y = MatMul(x, weight)
    logits = Gemm <transB = 1> (y, table)
}
"""


def keep_nothing(weight: ir.Value) -> bool:
    return False


def model(table: npt.NDArray[np.float32] = TABLE) -> ir.Model:
    """A look-up, a product, and a projection that is tied to the look-up."""
    made = graph(TEXT, table=table, weight=WEIGHT)
    for node in made.graph:
        node.outputs[0].shape = ir.Shape(["n", 70 if node.op_type == "Gemm" else 64])
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    return made


PASSES: dict[str, tuple[Pass, float]] = {  # and the largest relative error
    "int8": (lambda m: quantise_int8(m, keep_nothing, Int8Form(largest=REDUCED_RANGE)), 0.04),
    "int8-weight": (lambda m: quantise_blocks(m, 8, keep_nothing), 0.02),
    "int4": (lambda m: quantise_blocks(m, 4, keep_nothing), 0.2),
}


@pytest.mark.parametrize("precision", PASSES)
def test_products_and_look_up_are_close_and_nothing_large_stays_float(precision: str) -> None:
    quantise, limit = PASSES[precision]
    quantised, modified = quantise(model())
    assert modified
    error = np.linalg.norm(run(quantised, ids=IDS)[0] - EXPECTED) / np.linalg.norm(EXPECTED)
    assert error < limit
    floats = [v for v in quantised.graph.initializers.values() if v.dtype == ir.DataType.FLOAT]
    assert all(v.const_value is not None and v.const_value.size <= TABLE.size // 16 for v in floats)
    assert {n.op_type for n in quantised.graph}.isdisjoint({"MatMul", "Gemm"})
    assert quantise(quantised)[1] is False


@pytest.mark.parametrize("precision", PASSES)
def test_a_row_does_not_depend_on_its_neighbours(precision: str) -> None:
    quantised, _ = PASSES[precision][0](model())
    together = run(quantised, ids=IDS)[0]
    for i in range(len(IDS)):
        alone = run(quantised, ids=IDS[i : i + 1])[0][0]
        np.testing.assert_allclose(alone, together[i], atol=1e-4 * np.abs(EXPECTED).max())


def test_weights_that_are_named_stay_in_float() -> None:
    quantised, modified = quantise_int8(model(), lambda weight: weight.name == "table", Int8Form())
    assert modified
    assert [n.op_type for n in quantised.graph if n.op_type in ("Gemm", "Gather")] == ["Gather", "Gemm"]
    assert "table" in quantised.graph.initializers
    assert "weight" not in quantised.graph.initializers


def test_columns_keep_their_own_scale() -> None:
    weight = WEIGHT * np.logspace(-3, 3, WEIGHT.shape[1]).astype(np.float32)
    values, scale = quantise_columns(weight, REDUCED_RANGE)
    assert np.abs(values).max(axis=0).tolist() == [REDUCED_RANGE] * weight.shape[1]
    np.testing.assert_allclose(values * scale, weight, atol=0, rtol=0.51 / 1e-9)
    assert (np.abs(values * scale - weight) <= 0.501 * scale).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_keep_their_peak_and_unpack_to_the_weights(bits: int) -> None:
    rows = WEIGHT[:, :50]  # the last block is not full
    blocks = pack_blocks(rows, bits)
    flat = blocks.packed
    if bits == 4:
        flat = np.stack([flat & 15, flat >> 4], axis=-1).reshape(*flat.shape[:2], -1)
    values = (flat.astype(np.float32) - (1 << (bits - 1))) * blocks.scales[..., None]
    unpacked = values.reshape(len(rows), -1)[:, :50]
    steps = np.repeat(np.abs(blocks.scales), 32, axis=1)[:, :50]
    assert (np.abs(unpacked - rows) <= 1.001 * steps).all()
    assert np.abs(unpacked - rows).mean() < 0.3 * steps.mean()


def test_the_tied_table_is_stored_once_in_blocks(tmp_path: Path) -> None:
    quantised, _ = quantise_blocks(model(), 4, keep_nothing)
    write_shared_weights([quantised], tmp_path)
    size = (tmp_path / "weights.bin").stat().st_size
    once = sum(pack_blocks(a, 4).packed.nbytes + pack_blocks(a, 4).scales.nbytes for a in (TABLE, WEIGHT))
    assert size <= once + 4 * 64


MERGED = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 1, 8] x) => (float[n, 1, 8] y) {
    q = MatMul(x, wq)
    qb = Add(q, bq)
    k = MatMul(x, wk)
    kb = Add(bk, k)
    sum = Add(qb, kb)
    out = MatMul(sum, wo)
    y = Add(out, bo)
}
"""


def test_products_of_one_input_merge() -> None:
    arrays = {n: GENERATOR.standard_normal((8, 8)).astype(np.float32) for n in ("wq", "wk", "wo")}
    arrays |= {n: GENERATOR.standard_normal(8).astype(np.float32) for n in ("bq", "bk", "bo")}
    x = GENERATOR.standard_normal((3, 1, 8)).astype(np.float32)
    before = run(graph(MERGED, **arrays), x=x)
    merged, modified = merge_products(graph(MERGED, **arrays))
    assert modified
    assert [n.op_type for n in merged.graph] == ["MatMul", "Add", "Split", "Add", "MatMul", "Add"]
    np.testing.assert_allclose(run(merged, x=x)[0], before[0], atol=1e-5)
    assert merge_products(merged)[1] is False


BIASED = TEXT.replace("logits = Gemm <transB = 1> (y, table)", "logits = Gemm <transB = 1> (y, table, bias)")


def test_a_projection_with_a_bias_is_reduced_as_well() -> None:
    bias = GENERATOR.standard_normal(70).astype(np.float32)
    biased = graph(BIASED, table=TABLE, weight=WEIGHT, bias=bias)
    parted, modified = split_bias(biased)
    assert modified
    assert [n.op_type for n in parted.graph] == ["Gather", "MatMul", "Gemm", "Add"]
    np.testing.assert_allclose(run(parted, ids=IDS)[0], EXPECTED + bias, rtol=1e-4)
    assert split_bias(parted)[1] is False
    for node in parted.graph:
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    quantised, _ = quantise_int8(parted, keep_nothing, Int8Form())
    assert {n.op_type for n in quantised.graph}.isdisjoint({"MatMul", "Gemm"})


def test_a_table_that_is_turned_when_loaded_gives_the_same_numbers_and_is_stored_once() -> None:
    as_stored, _ = quantise_int8(model(), keep_nothing, Int8Form())
    turned, _ = quantise_int8(model(), keep_nothing, Int8Form(turn_tables=True))
    np.testing.assert_array_equal(run(turned, ids=IDS)[0], run(as_stored, ids=IDS)[0])
    assert "QGemm" not in {n.op_type for n in turned.graph}
    tables = [n for n, v in turned.graph.initializers.items() if v.shape is not None and 70 in v.shape.numpy()]
    assert sorted(tables) == ["table.int8", "table.scale"]
    assert [p.weight for p in quantised_products(turned)] == ["weight", "table"]


def test_a_row_of_zeros_stays_zero_in_8_bits() -> None:
    quantised, _ = quantise_int8(model(np.vstack([np.zeros_like(TABLE[:1]), TABLE[1:]])), keep_nothing, Int8Form())
    zeros, others = run(quantised, ids=np.array([0, 1]))[0]
    assert not zeros.any()
    assert others[1:].all()


def test_an_int8_bundle_computes_in_8_bits_and_is_small(
    checkpoint_of: Callable[[str], Checkpoint], tmp_path: Path
) -> None:
    report = export_bundle(checkpoint_of("gelu"), tmp_path / "b", ExportOptions(precision="int8"))
    assert report.manifest.precision == "int8"
    assert report.parity.passed
    decoder = onnx.load(tmp_path / "b" / "decoder.onnx", load_external_data=False)
    kinds = {n.op_type for n in decoder.graph.node}
    assert "MatMulIntegerToFloat" in kinds
    weights = {t.name for t in decoder.graph.initializer}
    assert not [n for n in decoder.graph.node if n.op_type in ("MatMul", "Gemm") and n.input[1] in weights]
    alone = [row for row in report.parity.rows if "each alone: sentences" in row.name]
    assert [row.difference for row in alone] == [0.0, 0.0]


def test_a_precision_that_standard_operators_lack_is_refused(
    checkpoint_of: Callable[[str], Checkpoint], tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match="int4 needs ONNX Runtime's operators"):
        export_bundle(checkpoint_of("paper"), tmp_path / "b", ExportOptions(operators="portable", precision="int4"))


def test_a_bundle_that_loses_too_much_bleu_is_refused(
    checkpoint_of: Callable[[str], Checkpoint], tmp_path: Path
) -> None:
    checkpoint, texts = checkpoint_of("gelu"), ["w5 w6 w7 w8 w9", "w10 w11 w12"]
    from tfexport_runtime.options import TranslationOptions
    from tfexport_train.evaluate import translate_with_model

    references = translate_with_model(checkpoint, texts, TranslationOptions(beam_size=4, n_best=4))
    options = ExportOptions(precision="int4", texts=texts, references=references, max_bleu_loss=0.0)
    with pytest.raises(ParityError, match="BLEU lost"):
        export_bundle(checkpoint, tmp_path / "b", options)
    assert not (tmp_path / "b").exists()
