"""Attention of fused operators written out as products, masks and a softmax, of which each can be computed otherwise.

Letters: B sentences, R rows, S source length, C capacity, L longest row with the new token, H heads, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir.tape import Tape

from tfexport.passes.match import add_initializer

MICROSOFT = "com.microsoft"
_UNSEEN = -1e9  # score of what is not to be seen


def written_attention(model: ir.Model) -> tuple[ir.Model, bool]:
    """MultiHeadAttention with a mask, and GroupQueryAttention of one new token over a cache in place.

    The cache stays in place: ScatterND writes into its input where that is its output. Returns the model, and whether
    anything was changed.
    """
    writer, modified = _Writer(model.graph), False
    for node in list(model.graph):
        if node.domain != MICROSOFT or node.op_type not in ("MultiHeadAttention", "GroupQueryAttention"):
            continue
        if node.op_type == "MultiHeadAttention":
            writer.whole_sequence(node)
        else:
            writer.new_token(node)
        model.graph.remove(node, safe=True)
        modified = True
    return model, modified


@dataclass(frozen=True)
class _Used:
    """What every layer of a step needs to know of the cache."""

    places: ir.Value  # int64 [R, H, 3], of the new token: row, head, position
    common: ir.Value  # int32 [1], the length of the shortest row with the new token
    visible: ir.Value  # bool [R, 1, 1, L], where a row has a token
    behind: ir.Value  # bool [R, 1, L - common, 1], the same behind `common`


@dataclass
class _Writer:
    """Writes new nodes before the one that they stand for."""

    graph: ir.Graph
    constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = field(default_factory=dict)
    masks: dict[ir.Value, ir.Value] = field(default_factory=dict)
    used: dict[ir.Value, _Used] = field(default_factory=dict)
    tape: Tape = field(default_factory=Tape)

    def whole_sequence(self, node: ir.Node) -> None:
        """q, k, v [B, S, H*D]; mask int32 [B, S]; perhaps a bias [1, H, S, S]."""
        q, k, v, mask = (_given(node, place) for place in (0, 1, 2, 4))
        bias = _optional(node, 5)
        heads = node.attributes["num_heads"].as_int()
        size = _size(q) // heads
        queries, keys, values = (self._split_heads(x, heads, size) for x in (q, k, v))
        scores = self._scores(queries, keys, node.attributes.get_float("scale", size**-0.5))
        if bias is not None:
            scores = self._op("Add", scores, bias)
        weights = self._op("Softmax", self._op("Add", scores, self._low_where_padded(mask)), axis=-1)
        attended = self._op("Transpose", self._op("MatMul", weights, values), perm=(0, 2, 1, 3))
        self._put(node, self._op("Reshape", attended, self._constant([0, 0, heads * size])))

    def new_token(self, node: ir.Node) -> None:
        """q, k, v [R, 1, H*D]; the cache [R, H, C, D]; its used lengths int32 [R]; L int32 [1]; perhaps a bias."""
        q, k, v, past_keys, past_values, lengths, total = (_given(node, place) for place in range(7))
        bias = _optional(node, 10)
        heads = node.attributes["num_heads"].as_int()
        used = self._used(lengths, total, heads)
        all_keys, all_values = (
            self._op("ScatterND", past, used.places, self._op("Reshape", new, self._constant([-1, heads, size])))
            for past, new, size in ((past_keys, k, _size(k) // heads), (past_values, v, _size(v) // heads))
        )
        keys = self._slice(all_keys, self._constant(np.zeros(1, np.int32)), total)
        queries = self._op("Reshape", q, self._constant([0, heads, 1, _size(q) // heads]))
        scores = self._scores(queries, keys, node.attributes["scale"].as_float())
        if bias is not None:
            scores = self._op("Add", scores, bias)
        seen = self._op("Where", used.visible, scores, self._constant(np.float32(_UNSEEN)))
        attended = self._op("MatMul", self._op("Softmax", seen, axis=-1), self._values(all_values, used, total))
        result = self._op("Reshape", attended, self._constant([0, 1, _size(v)]))
        self._put(node, result, all_keys, all_values)

    def _values(self, cache: ir.Value, used: _Used, total: ir.Value) -> ir.Value:
        """[R, H, L, D], 0 behind a row's tokens: whatever lies there in memory, times a weight of 0, may not be 0.

        Rows are most often equally long: what lies behind the shortest is then nothing, and nothing is masked.
        """
        common = self._slice(cache, self._constant(np.zeros(1, np.int32)), used.common)
        rest = self._slice(cache, used.common, total)
        masked = self._op("Where", used.behind, rest, self._constant(np.float32(0)))
        return self._op("Concat", common, masked, axis=2)

    def _used(self, lengths: ir.Value, total: ir.Value, heads: int) -> _Used:
        if lengths not in self.used:
            start, one = self._constant(np.int32(0)), self._constant(np.int32(1))
            positions = self._op("Range", start, self._op("Squeeze", total), one)
            last = self._op("Unsqueeze", lengths, self._constant([1, 2, 3]))
            column = self._op("Unsqueeze", positions, self._constant([1]))
            shortest = self._op("ReduceMin", lengths, self._constant([0]), keepdims=1)
            common = self._op("Add", shortest, self._constant(np.ones(1, np.int32)))
            rest = self._op("Slice", column, common, total, self._constant(np.zeros(1, np.int32)))
            self.used[lengths] = _Used(
                places=self._places(lengths, heads),
                common=common,
                visible=self._op("LessOrEqual", positions, last),
                behind=self._op("LessOrEqual", rest, last),
            )
        return self.used[lengths]

    def _places(self, lengths: ir.Value, heads: int) -> ir.Value:
        """int64 [R, H, 3]: row, head, length of the row."""
        rows = self._op("Shape", lengths)
        shape = self._op("Concat", rows, self._constant([heads, 1]), axis=0)
        numbers = self._op("Range", self._constant(0), self._op("Squeeze", rows), self._constant(1))
        row = self._op("Unsqueeze", numbers, self._constant([1, 2]))
        head = self._constant(np.arange(heads).reshape(1, heads, 1))
        position = self._op("Unsqueeze", self._op("Cast", lengths, to=ir.DataType.INT64), self._constant([1, 2]))
        return self._op("Concat", *(self._op("Expand", x, shape) for x in (row, head, position)), axis=-1)

    def _low_where_padded(self, mask: ir.Value) -> ir.Value:
        """int32 [B, S], 1 on real tokens -> float32 [B, 1, 1, S], 0 there."""
        if mask not in self.masks:
            padded = self._op("Sub", self._constant(np.int32(1)), mask)
            low = self._op("Mul", self._op("Cast", padded, to=ir.DataType.FLOAT), self._constant(np.float32(_UNSEEN)))
            self.masks[mask] = self._op("Unsqueeze", low, self._constant([1, 2]))
        return self.masks[mask]

    def _split_heads(self, x: ir.Value, heads: int, size: int) -> ir.Value:
        """[B, S, H*D] -> [B, H, S, D]"""
        parted = self._op("Reshape", x, self._constant([0, 0, heads, size]))
        return self._op("Transpose", parted, perm=(0, 2, 1, 3))

    def _scores(self, queries: ir.Value, keys: ir.Value, scale: float) -> ir.Value:
        """[N, H, T, D] and [N, H, S, D] -> [N, H, T, S]; the keys are read as they lie."""
        return self.tape.op("FusedMatMul", [queries, keys], {"transB": 1, "alpha": scale}, domain=MICROSOFT)

    def _slice(self, cache: ir.Value, start: ir.Value, end: ir.Value) -> ir.Value:
        return self._op("Slice", cache, start, end, self._constant(np.array([2], np.int32)))

    def _op(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        return self.tape.op(op_type, inputs, attributes)

    def _constant(self, value: npt.ArrayLike) -> ir.Value:
        array = np.asarray(value)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = add_initializer(self.graph, f"attention.{len(self.constants)}", array)
        return self.constants[key]

    def _put(self, node: ir.Node, *results: ir.Value) -> None:
        """What read the outputs of the node reads the results."""
        self.graph.insert_before(node, self.tape.nodes)
        self.tape = Tape()
        for old, new in zip(node.outputs, results, strict=True):
            new.name, new.shape, new.type = old.name, old.shape, old.type
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)


def _given(node: ir.Node, place: int) -> ir.Value:
    value = _optional(node, place)
    assert value is not None, f"{node.op_type} without input {place}"
    return value


def _optional(node: ir.Node, place: int) -> ir.Value | None:
    return node.inputs[place] if place < len(node.inputs) else None


def _size(x: ir.Value) -> int:
    """Of the last axis."""
    size = x.shape[-1] if x.shape is not None else None
    assert isinstance(size, int), f"{x.name} has no size"
    return size
