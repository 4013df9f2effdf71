"""Products in 8 bits: weights with one scale a column, activations with one scale a row.

A row's scale comes from that row alone, so the result of a sentence does not depend on what is computed beside it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tfexport.passes.match import add_initializer, is_op, matrix, without_leftovers
from tfexport.passes.products import Product, WeightFilter, lookup_of, product_of

MICROSOFT = "com.microsoft"

FULL_RANGE = 127  # largest magnitude of a weight
REDUCED_RANGE = 63  # for x86 processors without VNNI, whose 16-bit sums of pairs overflow above it


def quantise_int8(
    model: ir.Model, keep_float: WeightFilter, largest: int = FULL_RANGE, turn_tables: bool = False
) -> tuple[ir.Model, bool]:
    """Every product with a constant matrix [K, N] or, transposed, [N, K], and the look-up in a table [V, K].

    turn_tables: a transposed matrix is turned when the graph is loaded, for WebAssembly, where a product with one row
    takes a fifth of the time then; elsewhere it would only take memory. Returns the model, and whether anything was
    changed.
    """
    graph, modified = model.graph, False
    shared = _Shared(graph, largest, turn_tables)
    for node in list(graph):
        product, table = product_of(node), lookup_of(node)
        if product is not None and not keep_float(product.weight):
            shared.replace_product(node, product)
            modified = True
        elif table is not None and not keep_float(table):
            shared.replace_lookup(node, table)
            modified = True
    if modified:
        model.graph.opset_imports[MICROSOFT] = 1
    return without_leftovers(model), modified


def quantise_columns(
    weight: npt.NDArray[np.float32], largest: int
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """[K, N] -> int8 [K, N] and scale [N]; weight = int8 * scale, symmetric."""
    scale = np.maximum(np.abs(weight).max(axis=0), 1e-8) / largest
    return np.clip(np.round(weight / scale), -largest, largest).astype(np.int8), scale.astype(np.float32)


class _Shared:
    """What several products of a graph have in common: constants, weights, and the rows of one input."""

    def __init__(self, graph: ir.Graph, largest: int, turn_tables: bool) -> None:
        self._graph, self._largest, self._turn_tables = graph, largest, turn_tables
        self._weights: dict[tuple[ir.Value, bool], tuple[ir.Value, ir.Value]] = {}
        self._rows: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        self._constants: dict[str, ir.Value] = {}

    def replace_product(self, node: ir.Node, product: Product) -> None:
        """x W -> (rows of x in 8 bits) (W in 8 bits), times the scale of the row."""
        values, scale = self._weight(product.weight, product.transposed)
        rows, row_scale = self._rows.get(product.x) or self._quantise_rows(node, product.x)
        a_scale, a_zero = self._unit_scale(), self._constant("int8.a_zero", np.uint8(128))
        turned = []
        if product.transposed and self._turn_tables:
            turned = [ir.node("Transpose", [values], {"perm": [1, 0]})]
            values = turned[0].outputs[0]
        if product.transposed and not turned:  # reads the table as the look-up does
            zeros = self._constant(f"{values.name}.zero", np.zeros(scale.shape[0], np.int8))  # type: ignore[index]
            inputs = [rows, a_scale, a_zero, values, scale, zeros]
            exact = ir.node("QGemm", inputs, {"transB": 1}, domain=MICROSOFT, num_outputs=1)
        else:
            inputs = [rows, values, a_scale, scale, a_zero]
            exact = ir.node("MatMulIntegerToFloat", inputs, domain=MICROSOFT, num_outputs=1)
        self._put(node, [*turned, exact, ir.node("Mul", [exact.outputs[0], row_scale])])

    def replace_lookup(self, node: ir.Node, table: ir.Value) -> None:
        """Rows of a table in 8 bits."""
        values, scale = self._weight(table, transposed=True)
        ids = node.inputs[1]
        picked = ir.node("Gather", [values, ids])
        cast = ir.node("Cast", [picked.outputs[0]], {"to": ir.DataType.FLOAT})
        scales = ir.node("Gather", [scale, ids])
        last = ir.node("Unsqueeze", [scales.outputs[0], self._constant("int8.last_axis", np.array([-1], np.int64))])
        scaled = ir.node("Mul", [cast.outputs[0], last.outputs[0]])
        self._put(node, [picked, cast, scales, last, scaled])

    def _quantise_rows(self, before: ir.Node, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """x / (largest magnitude of its row) as uint8 around 128, and that magnitude.

        A row of zeros divides by zero; whatever integers come of that, times its magnitude they are 0 again.
        """
        axes = self._constant("int8.last_axis", np.array([-1], np.int64))
        magnitude = [] if is_op(x, "Relu") else [ir.node("Abs", [x])]
        largest = ir.node("ReduceMax", [magnitude[0].outputs[0] if magnitude else x, axes], {"keepdims": 1})
        unit = ir.node("Div", [x, largest.outputs[0]])
        zero = self._constant("int8.a_zero", np.uint8(128))
        rows = ir.node("QuantizeLinear", [unit.outputs[0], self._unit_scale(), zero])
        self._graph.insert_before(before, [*magnitude, largest, unit, rows])
        self._rows[x] = rows.outputs[0], largest.outputs[0]
        return self._rows[x]

    def _weight(self, weight: ir.Value, transposed: bool) -> tuple[ir.Value, ir.Value]:
        """The matrix in 8 bits as it is stored, with one scale a column of [K, N], a row of [N, K]."""
        if (weight, transposed) not in self._weights:
            tensor = matrix(weight)
            assert tensor is not None
            columns = tensor.numpy().T if transposed else tensor.numpy()
            values, scale = quantise_columns(columns, self._largest)
            self._weights[weight, transposed] = self._add(weight, values.T if transposed else values, scale)
        return self._weights[weight, transposed]

    def _add(
        self, weight: ir.Value, values: npt.NDArray[np.int8], scale: npt.NDArray[np.float32]
    ) -> tuple[ir.Value, ir.Value]:
        return (
            add_initializer(self._graph, f"{weight.name}.int8", np.ascontiguousarray(values)),
            add_initializer(self._graph, f"{weight.name}.scale", scale),
        )

    def _unit_scale(self) -> ir.Value:
        return self._constant("int8.a_scale", np.float32(1 / 127))

    def _constant(self, name: str, value: npt.ArrayLike) -> ir.Value:
        if name not in self._constants:
            self._constants[name] = add_initializer(self._graph, name, np.asarray(value))
        return self._constants[name]

    def _put(self, old: ir.Node, nodes: list[ir.Node]) -> None:
        result = nodes[-1].outputs[0]
        result.name, result.shape, result.type = old.outputs[0].name, old.outputs[0].shape, old.outputs[0].type
        ir.convenience.replace_nodes_and_values(self._graph, old, [old], nodes, old.outputs, [result])
