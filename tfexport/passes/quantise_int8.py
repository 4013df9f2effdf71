"""Products in 8 bits: weights with one scale a column, activations with one scale a row, or with a fixed one.

A row's scale comes from that row alone, or from a range that is known beforehand, so the result of a sentence does not
depend on what is computed beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tfexport.passes.match import add_initializer, is_op, matrix, only_use, vector, without_leftovers
from tfexport.passes.products import Product, WeightFilter, lookup_of, product_of

MICROSOFT = "com.microsoft"

FULL_RANGE = 127  # largest magnitude of a weight
REDUCED_RANGE = 63  # for x86 processors without VNNI, whose 16-bit sums of pairs overflow above it


@dataclass(frozen=True)
class ActivationRange:
    """Between which numbers the input of a product lies; 0 lies between them."""

    lowest: float
    highest: float

    def steps(self) -> tuple[np.float32, np.uint8]:
        """Scale and zero point of uint8, by which 0 is exact: (lowest, highest) ~ scale * ((0, 255) - zero point)."""
        scale = max(self.highest - self.lowest, 1e-8) / 255
        return np.float32(scale), np.uint8(np.clip(round(-self.lowest / scale), 0, 255))


@dataclass(frozen=True)
class Int8Form:
    """How weights and activations become integers."""

    largest: int = FULL_RANGE  # magnitude of a weight
    turn_tables: bool = False  # a transposed matrix is turned when the graph is loaded: for WebAssembly, where a
    # product with one row takes a fifth of the time then; elsewhere it would only take memory
    ranges: Mapping[str, ActivationRange] | None = None  # of activations, by name; others have a scale a row
    bias_inside: bool = True  # of a product with a fixed scale; some processors round the sum once, others twice


def quantise_int8(model: ir.Model, keep_float: WeightFilter, form: Int8Form) -> tuple[ir.Model, bool]:
    """Every product with a constant matrix [K, N] or, transposed, [N, K], and the look-up in a table [V, K].

    Returns the model, and whether anything was changed.
    """
    graph, modified = model.graph, False
    shared = _Shared(graph, form)
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


@dataclass(frozen=True)
class _Rounded:
    """The input of products as uint8: x ~ scale * (values - zero) * magnitude."""

    values: ir.Value
    scale: ir.Value
    zero: ir.Value
    magnitude: ir.Value | None  # of each row [..., 1]; None: the scale holds for all rows


class _Shared:
    """What several products of a graph have in common: constants, weights, and rounded inputs."""

    def __init__(self, graph: ir.Graph, form: Int8Form) -> None:
        self._graph, self._form = graph, form
        self._weights: dict[tuple[ir.Value, bool], tuple[ir.Value, ir.Value]] = {}
        self._inputs: dict[ir.Value, _Rounded] = {}
        self._constants: dict[str, ir.Value] = {}

    def replace_product(self, node: ir.Node, product: Product) -> None:
        """x W -> (x in 8 bits) (W in 8 bits), times the scale of the row where there is one."""
        values, scale = self._weight(product.weight, product.transposed)
        x, replaced = self._rounded(node, product.x), [node]
        turned = []
        if product.transposed and self._form.turn_tables:
            turned = [ir.node("Transpose", [values], {"perm": [1, 0]})]
            values = turned[0].outputs[0]
        if product.transposed and not turned:  # reads the table as the look-up does
            zeros = self._constant(f"{values.name}.zero", np.zeros(scale.shape[0], np.int8))  # type: ignore[index]
            inputs = [x.scale, x.zero, values, scale, zeros]
            exact = ir.node("QGemm", [x.values, *inputs], {"transB": 1}, domain=MICROSOFT, num_outputs=1)
        else:
            bias = []
            if x.magnitude is None and self._form.bias_inside and (added := _added_bias(node)) is not None:
                replaced, bias = [added[0], node], [None, added[1]]
            inputs = [values, x.scale, scale, x.zero]
            exact = ir.node("MatMulIntegerToFloat", [x.values, *inputs, *bias], domain=MICROSOFT, num_outputs=1)
        by_row = [ir.node("Mul", [exact.outputs[0], x.magnitude])] if x.magnitude is not None else []
        self._put(replaced, [*turned, exact, *by_row])

    def replace_lookup(self, node: ir.Node, table: ir.Value) -> None:
        """Rows of a table in 8 bits."""
        values, scale = self._weight(table, transposed=True)
        ids = node.inputs[1]
        picked = ir.node("Gather", [values, ids])
        cast = ir.node("Cast", [picked.outputs[0]], {"to": ir.DataType.FLOAT})
        scales = ir.node("Gather", [scale, ids])
        last = ir.node("Unsqueeze", [scales.outputs[0], self._constant("int8.last_axis", np.array([-1], np.int64))])
        scaled = ir.node("Mul", [cast.outputs[0], last.outputs[0]])
        self._put([node], [picked, cast, scales, last, scaled])

    def _rounded(self, before: ir.Node, x: ir.Value) -> _Rounded:
        if x not in self._inputs:
            known = (self._form.ranges or {}).get(x.name or "")
            self._inputs[x] = self._by_row(before, x) if known is None else self._in_steps(before, x, known)
        return self._inputs[x]

    def _in_steps(self, before: ir.Node, x: ir.Value, known: ActivationRange) -> _Rounded:
        """What lies outside of the range is cut off. ONNX Runtime drops a Relu whose zero point is 0."""
        scale, zero = known.steps()
        steps, middle = self._constant(f"{x.name}.scale", scale), self._constant(f"{x.name}.zero", zero)
        rounded = ir.node("QuantizeLinear", [x, steps, middle])
        self._graph.insert_before(before, [rounded])
        return _Rounded(rounded.outputs[0], steps, middle, magnitude=None)

    def _by_row(self, before: ir.Node, x: ir.Value) -> _Rounded:
        """x / (largest magnitude of its row) around 128.

        A row of zeros divides by zero; whatever integers come of that, times its magnitude they are 0 again.
        """
        axes = self._constant("int8.last_axis", np.array([-1], np.int64))
        scale, zero = self._constant("int8.a_scale", np.float32(1 / 127)), self._constant("int8.a_zero", np.uint8(128))
        magnitude = [] if is_op(x, "Relu") else [ir.node("Abs", [x])]
        largest = ir.node("ReduceMax", [magnitude[0].outputs[0] if magnitude else x, axes], {"keepdims": 1})
        unit = ir.node("Div", [x, largest.outputs[0]])
        rows = ir.node("QuantizeLinear", [unit.outputs[0], scale, zero])
        self._graph.insert_before(before, [*magnitude, largest, unit, rows])
        return _Rounded(rows.outputs[0], scale, zero, magnitude=largest.outputs[0])

    def _weight(self, weight: ir.Value, transposed: bool) -> tuple[ir.Value, ir.Value]:
        """The matrix in 8 bits as it is stored, with one scale a column of [K, N], a row of [N, K]."""
        if (weight, transposed) not in self._weights:
            tensor = matrix(weight)
            assert tensor is not None
            columns = tensor.numpy().T if transposed else tensor.numpy()
            values, scale = quantise_columns(columns, self._form.largest)
            self._weights[weight, transposed] = self._add(weight, values.T if transposed else values, scale)
        return self._weights[weight, transposed]

    def _add(
        self, weight: ir.Value, values: npt.NDArray[np.int8], scale: npt.NDArray[np.float32]
    ) -> tuple[ir.Value, ir.Value]:
        return (
            add_initializer(self._graph, f"{weight.name}.int8", np.ascontiguousarray(values)),
            add_initializer(self._graph, f"{weight.name}.scale", scale),
        )

    def _constant(self, name: str, value: npt.ArrayLike) -> ir.Value:
        if name not in self._constants:
            self._constants[name] = add_initializer(self._graph, name, np.asarray(value))
        return self._constants[name]

    def _put(self, old: list[ir.Node], nodes: list[ir.Node]) -> None:
        """old: the node whose output is replaced, then others that go with it."""
        result, before = nodes[-1].outputs[0], old[0].outputs[0]
        result.name, result.shape, result.type = before.name, before.shape, before.type
        ir.convenience.replace_nodes_and_values(self._graph, old[0], old, nodes, [before], [result])


def _added_bias(node: ir.Node) -> tuple[ir.Node, ir.Value] | None:
    """The Add behind a product, and the constant vector that it adds, if nothing else reads the product."""
    follower = only_use(node.outputs[0])
    if follower is None or follower.op_type != "Add" or follower.domain:
        return None
    bias = next((value for value in follower.inputs if value is not node.outputs[0]), None)
    return (follower, bias) if bias is not None and vector(bias) is not None else None
