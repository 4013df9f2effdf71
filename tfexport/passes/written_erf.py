"""The error function in operators that exist in float64, which Erf does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from tfexport.passes.match import add_initializer

# Abramowitz and Stegun 1964, formula 7.1.26; the error is at most 1.5e-7.
_P = 0.3275911
_A = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def written_erf(model: ir.Model) -> tuple[ir.Model, bool]:
    """erf(x) = sign(x) (1 - (a1 t + ... + a5 t^5) exp(-x^2)), with t = 1 / (1 + p |x|).

    Returns the model, and whether anything was changed.
    """
    found = [node for node in model.graph if node.op_type == "Erf" and not node.domain]
    if not found:
        return model, False
    numbers = {
        number: add_initializer(model.graph, f"erf.{place}", np.asarray(number, np.float32))
        for place, number in enumerate((1.0, _P, *_A))
    }
    for node in found:
        _replace(model.graph, node, numbers)
    return model, True


def _replace(graph: ir.Graph, node: ir.Node, numbers: dict[float, ir.Value]) -> None:
    tape, x = Tape(), node.inputs[0]

    def op(op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        return tape.op(op_type, inputs, attributes)

    t = op("Reciprocal", op("Add", op("Mul", op("Abs", x), numbers[_P]), numbers[1.0]))
    series = op("Mul", t, numbers[_A[-1]])
    for factor in reversed(_A[:-1]):
        series = op("Mul", op("Add", series, numbers[factor]), t)
    decay = op("Exp", op("Neg", op("Mul", x, x)))
    result = op("Mul", op("Sign", x), op("Sub", numbers[1.0], op("Mul", series, decay)))
    graph.insert_before(node, tape.nodes)
    ir.convenience.replace_nodes_and_values(graph, node, [node], [], node.outputs, [result])
