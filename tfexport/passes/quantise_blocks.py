"""Weights in 4 or 8 bits, in blocks with a scale each: com.microsoft::MatMulNBits and GatherBlockQuantized."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tfexport.passes.match import add_initializer, matrix, without_leftovers
from tfexport.passes.products import WeightFilter, lookup_of, product_of

MICROSOFT = "com.microsoft"
BLOCK = 32  # weights that share a scale
ACCURACY_LEVEL = 4  # activations are rounded to 8 bits inside the operator, by row and block


@dataclass(frozen=True)
class Blocks:
    """A matrix [N, K] by rows, in blocks along K."""

    packed: npt.NDArray[np.uint8]  # [N, blocks, BLOCK * bits / 8]; of two 4-bit values the first is the low half
    scales: npt.NDArray[np.float32]  # [N, blocks]


def quantise_blocks(model: ir.Model, bits: int, keep_float: WeightFilter) -> tuple[ir.Model, bool]:
    """Every product with a constant matrix [K, N], and the look-up in a table [V, K] whose K fills whole blocks.

    Returns the model, and whether anything was changed.
    """
    graph, modified = model.graph, False
    made: dict[tuple[ir.Value, bool], tuple[Blocks, ir.Value, ir.Value]] = {}
    for node in list(graph):
        product = product_of(node)
        if product is None or keep_float(product.weight):
            continue
        key = product.weight, product.transposed
        made[key] = made.get(key) or _add(graph, product.weight, product.transposed, bits)
        _, packed, scales = made[key]
        _put(
            graph,
            node,
            _product(product.x, packed, scales, made[key][0], _width(product.weight, product.transposed), bits),
        )
        modified = True
    for node in list(graph):
        table = lookup_of(node)
        if table is None or keep_float(table) or _width(table, transposed=True) % BLOCK:
            continue
        blocks = made[table, True][0] if (table, True) in made else _blocks(table, transposed=True, bits=bits)
        _put(graph, node, _lookup(graph, node, table, blocks, bits))
        modified = True
    if modified:
        model.graph.opset_imports[MICROSOFT] = 1
    return without_leftovers(model), modified


def pack_blocks(rows: npt.NDArray[np.float32], bits: int) -> Blocks:
    """[N, K] -> blocks; symmetric around the middle value, the largest magnitude of a block exactly kept."""
    count, width = rows.shape
    padded = np.zeros((count, -(-width // BLOCK) * BLOCK), np.float32)
    padded[:, :width] = rows
    blocks = padded.reshape(count, -1, BLOCK)
    middle = 1 << (bits - 1)
    peak = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[..., None], axis=2)
    scales = np.where(peak == 0, 1.0, peak / -middle).astype(np.float32)
    values = np.clip(np.round(blocks / scales) + middle, 0, 2 * middle - 1).astype(np.uint8)
    packed = values if bits == 8 else (values[..., 0::2] | (values[..., 1::2] << 4)).astype(np.uint8)
    return Blocks(packed, scales[..., 0])


def _product(x: ir.Value, packed: ir.Value, scales: ir.Value, blocks: Blocks, width: int, bits: int) -> ir.Node:
    attributes = {
        "K": width,
        "N": len(blocks.packed),
        "bits": bits,
        "block_size": BLOCK,
        "accuracy_level": ACCURACY_LEVEL,
    }
    return ir.node("MatMulNBits", [x, packed, scales], attributes, domain=MICROSOFT, num_outputs=1)


def _lookup(graph: ir.Graph, node: ir.Node, table: ir.Value, blocks: Blocks, bits: int) -> ir.Node:
    """The same bytes as the product's, in the shape that the look-up wants."""
    data = add_initializer(graph, f"{table.name}.rows", blocks.packed.reshape(len(blocks.packed), -1))
    scales = add_initializer(graph, f"{table.name}.row_scales", blocks.scales)
    attributes = {"bits": bits, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1}
    inputs = [data, node.inputs[1], scales]
    return ir.node("GatherBlockQuantized", inputs, attributes, domain=MICROSOFT, num_outputs=1)


def _add(graph: ir.Graph, weight: ir.Value, transposed: bool, bits: int) -> tuple[Blocks, ir.Value, ir.Value]:
    blocks = _blocks(weight, transposed, bits)
    packed = add_initializer(graph, f"{weight.name}.int{bits}", blocks.packed)
    return blocks, packed, add_initializer(graph, f"{weight.name}.scales", blocks.scales)


def _blocks(weight: ir.Value, transposed: bool, bits: int) -> Blocks:
    """transposed: the weight is stored as [N, K] already."""
    array = _array(weight)
    return pack_blocks(array if transposed else np.ascontiguousarray(array.T), bits)


def _width(weight: ir.Value, transposed: bool) -> int:
    """K"""
    return int(_array(weight).shape[1 if transposed else 0])


def _array(weight: ir.Value) -> npt.NDArray[np.float32]:
    tensor = matrix(weight)
    assert tensor is not None
    array: npt.NDArray[np.float32] = tensor.numpy()
    return array


def _put(graph: ir.Graph, old: ir.Node, new: ir.Node) -> None:
    result, replaced = new.outputs[0], old.outputs[0]
    result.name, result.shape, result.type = replaced.name, replaced.shape, replaced.type
    ir.convenience.replace_nodes_and_values(graph, old, [old], [new], old.outputs, [result])
