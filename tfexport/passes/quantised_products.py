"""Where a written graph multiplies by weights in 8 or 4 bits, whatever operators say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from tfexport.passes.match import constant, is_op, only_use

INTEGER_PRODUCTS = frozenset(
    {"MatMulIntegerToFloat", "QGemm", "MatMulNBits", "MatMulInteger", "DynamicQuantizeMatMul", "QLinearMatMul"}
)
FLOAT_PRODUCTS = frozenset({"MatMul", "Gemm", "FusedMatMul", "FusedGemm", "GemmFloat8", "TransposeMatMul"})
_INTEGERS = frozenset({ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4})
_UNPACKING = frozenset({"DequantizeLinear", "Cast", "Transpose", "Reshape", "Sub", "Mul"})


@dataclass(frozen=True)
class QuantisedProduct:
    """x W, with W from a matrix of integers."""

    node: ir.Node
    weight: str  # name of the float matrix that W was made from
    x: ir.Value  # in float
    y: ir.Value  # in float, with the scale of x, and with the bias where it is inside
    bias: ir.TensorProtocol | None  # [N]


def quantised_products(model: ir.Model) -> Iterator[QuantisedProduct]:
    for node in model.graph:
        if node.op_type not in INTEGER_PRODUCTS | FLOAT_PRODUCTS:
            continue
        weight = next((w for value in node.inputs[1:] if (w := _integer_matrix(value)) is not None), None)
        x = _before_rounding(node.inputs[0])
        if weight is not None and x is not None:
            yield QuantisedProduct(node, _float_name(weight), x, _scaled_back(node), _bias_inside(node))


def _integer_matrix(value: ir.Value | None) -> ir.Value | None:
    """The initializer of integers with two axes or more, seen through operators that only make floats of it."""
    if value is None:
        return None
    if value.is_initializer():
        tensor = value.const_value
        is_matrix = tensor is not None and tensor.dtype in _INTEGERS and len(tensor.shape) >= 2
        return value if is_matrix else None
    node = value.producer()
    return _integer_matrix(node.inputs[0]) if node is not None and node.op_type in _UNPACKING else None


def _float_name(weight: ir.Value) -> str:
    name = weight.name or ""
    return next((name.removesuffix(end) for end in (".int8", ".int4") if name.endswith(end)), name)


def _before_rounding(value: ir.Value | None) -> ir.Value | None:
    """x of QuantizeLinear(Div(x, largest of the row)) or of QuantizeLinear(x), or the value itself."""
    if not is_op(value, "QuantizeLinear"):
        return value
    rounded = value.producer() if value is not None else None
    unit = rounded.inputs[0] if rounded is not None else None
    division = unit.producer() if unit is not None and is_op(unit, "Div") else None
    return division.inputs[0] if division is not None and is_op(division.inputs[1], "ReduceMax") else unit


def _scaled_back(node: ir.Node) -> ir.Value:
    """The output, times the scale of the row where that is a product of its own."""
    result = node.outputs[0]
    follower = only_use(result)
    if follower is None or follower.op_type != "Mul" or not is_op(node.inputs[0], "QuantizeLinear"):
        return result
    is_scale = any(is_op(value, "ReduceMax") for value in follower.inputs)
    return follower.outputs[0] if is_scale else result


def _bias_inside(node: ir.Node) -> ir.TensorProtocol | None:
    """The seventh input of MatMulIntegerToFloat."""
    has_bias = node.op_type == "MatMulIntegerToFloat" and len(node.inputs) == 7
    return constant(node.inputs[6]) if has_bias else None
