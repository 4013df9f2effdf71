"""Each pass alone: what it changes, that it says so, and that the outputs stay."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from tfexport.passes.block_top_k import block_top_k
from tfexport.passes.strip_metadata import strip_metadata
from tfexport.passes.tie_output_projection import tie_output_projection


def graph(text: str, **initializers: np.ndarray) -> ir.Model:
    """A model from ONNX's text form, with the values of its initializers."""
    import onnx.parser

    model = ir.from_proto(onnx.parser.parse_model(text))
    for name, array in initializers.items():
        value = next(v for n in model.graph for v in n.inputs if v is not None and v.name == name)
        value.const_value = ir.tensor(array, name=name)
        value.shape, value.dtype = ir.Shape(array.shape), ir.DataType.from_numpy(array.dtype)
        model.graph.initializers[name] = value
    return model


def run(model: ir.Model, **inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


TIED = """
<ir_version: 9, opset_import: ["" : 18]>
g (int64[n] ids) => (float[n, 7] logits) {
    x = Gather(table, ids)
    logits = MatMul(x, projection)
}
"""


def tied() -> tuple[ir.Model, np.ndarray]:
    table = np.random.default_rng(0).standard_normal((7, 4)).astype(np.float32)
    model = graph(TIED, table=table, projection=np.ascontiguousarray(table.T))
    next(iter(model.graph)).outputs[0].shape = ir.Shape(["n", 4])
    return model, table


def test_a_tied_projection_reads_the_table() -> None:
    model, table = tied()
    ids = np.array([3, 0, 6])
    before = run(model, ids=ids)[0]
    model, modified = tie_output_projection(model)
    assert modified
    assert list(model.graph.initializers) == ["table"]
    assert [n.op_type for n in model.graph] == ["Gather", "Gemm"]
    np.testing.assert_allclose(run(model, ids=ids)[0], before, rtol=1e-6)
    np.testing.assert_allclose(before, table[ids] @ table.T, rtol=1e-5)
    assert tie_output_projection(model)[1] is False


def test_a_projection_of_its_own_stays() -> None:
    _, table = tied()
    other = graph(TIED, table=table, projection=np.ascontiguousarray(table.T) + 1)
    next(iter(other.graph)).outputs[0].shape = ir.Shape(["n", 4])
    assert tie_output_projection(other)[1] is False
    assert "projection" in other.graph.initializers


def test_metadata_is_removed_everywhere() -> None:
    model, _ = tied()
    node = next(iter(model.graph))
    node.metadata_props["where"] = "model.py, line 7"
    node.outputs[0].metadata_props["shape"] = "x"
    model.graph.doc_string = "traced"
    model, modified = strip_metadata(model)
    assert modified
    assert not node.metadata_props
    assert not node.outputs[0].metadata_props
    assert not model.graph.doc_string
    assert strip_metadata(model)[1] is False


LARGEST = """
<ir_version: 9, opset_import: ["" : 18]>
g (float[n, WIDTH] x, int64[1] k) => (float[n, k] values, int64[n, k] ids) {
    y = Neg(x)
    values, ids = TopK<axis = -1>(y, k)
}
"""


@pytest.mark.parametrize("width", [1024, 1031, 6000])  # of whole blocks, a prime, another divisor
@pytest.mark.parametrize("k", [1, 2, 8, 100])  # the last one: more than there are blocks
def test_the_best_of_blocks_are_the_best_of_the_row_even_among_equals(width: int, k: int) -> None:
    model = graph(LARGEST.replace("WIDTH", str(width)))
    next(iter(model.graph)).outputs[0].shape = ir.Shape(["n", width])
    x = np.random.default_rng(k).integers(0, 40, (5, width)).astype(np.float32)  # full of equals
    x[3] = np.inf  # as where every token is forbidden
    x[4, 7:] = np.inf  # and where almost all are
    wanted = run(model, x=x, k=np.array([k]))
    model, modified = block_top_k(model)
    assert modified
    for found, expected in zip(run(model, x=x, k=np.array([k])), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    order = np.argsort(x, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(wanted[1], order)
    assert block_top_k(model)[1] is False


@pytest.mark.parametrize("width", [1024, 1031])
def test_every_value_of_the_search_in_blocks_has_its_type(width: int) -> None:
    model = graph(LARGEST.replace("WIDTH", str(width)))
    first = next(iter(model.graph)).outputs[0]
    first.shape, first.type = ir.Shape(["n", width]), ir.TensorType(ir.DataType.FLOAT)
    made, _ = block_top_k(model)
    inferred = onnx.shape_inference.infer_shapes(ir.to_proto(made), strict_mode=True, data_prop=True)
    known = {value.name: value.type.tensor_type.elem_type for value in inferred.graph.value_info}
    inside = [value for node in made.graph for value in node.outputs if not value.is_graph_output()]
    assert {value.name: value.dtype for value in inside} == {value.name: known[value.name] for value in inside}
    assert {value.dtype for value in inside} == {ir.DataType.FLOAT, ir.DataType.INT64}


@pytest.mark.parametrize("change", ["axis = 0", "largest = 0"])
def test_another_search_than_for_the_largest_of_a_row_stays(change: str) -> None:
    model = graph(LARGEST.replace("WIDTH", "1024").replace("axis = -1", change))
    next(iter(model.graph)).outputs[0].shape = ir.Shape(["n", 1024])
    assert block_top_k(model)[1] is False
