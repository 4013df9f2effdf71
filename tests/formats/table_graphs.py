"""A model made of a table, as the two graphs that an export begins with and as a step model: both compute the same.

The log-probabilities of a row depend on the first id of its source and on the sum of the tokens it has read, which is
kept in the cache: a beam that is moved to the wrong place gets others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnxscript import GraphBuilder

from tests.search.table_model import LEVELS, single_precision_log_softmax
from tfexport_runtime.step_model import Candidates, FloatArray, IntArray

SOURCES, STATES, VOCAB = 48, 11, 9


def make_table(seed: int) -> FloatArray:
    """float32 [SOURCES, STATES, VOCAB], by turns of few levels (whose sums tie), with holes, and smooth."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.standard_normal((SOURCES, STATES, VOCAB)).astype(np.float32)
    holes = generator.random(logits.shape) < 0.4
    holes[2::3], holes[..., 2] = False, False  # eos is always possible
    logits[holes] = -np.inf
    table = np.stack([single_precision_log_softmax(row) for row in logits.reshape(-1, VOCAB)]).reshape(logits.shape)
    table[::3] = LEVELS[generator.integers(0, len(LEVELS), table[::3].shape)]
    return table


def table_graphs(table: FloatArray) -> tuple[ir.Model, ir.Model]:
    """An encoder and a growing decoder of one layer, one head, one feature."""
    return _encoder(), _decoder(table)


def _encoder() -> ir.Model:
    """Keys and values: the first id."""
    builder = _builder()
    op = builder.op
    ids = builder.input("input_ids", ir.DataType.INT64, ["batch", "source"])
    builder.input("attention_mask", ir.DataType.INT32, ["batch", "source"])
    first = op.Cast(op.Slice(ids, [0], [1], [1]), to=ir.DataType.FLOAT)
    for name in ("present.0.encoder.key", "present.0.encoder.value"):
        builder.add_output(op.Unsqueeze(op.Identity(first), [1, 2]), name)
    return ir.Model(builder.graph, ir_version=10)


def _decoder(table: FloatArray) -> ir.Model:
    builder = _builder()
    op, float32, int64 = builder.op, ir.DataType.FLOAT, ir.DataType.INT64
    tokens = builder.input("input_ids", int64, ["rows", 1])
    builder.input("past_lengths", ir.DataType.INT32, ["rows"])
    builder.input("encoder_attention_mask", ir.DataType.INT32, ["batch", "source"])
    bias = builder.input("logit_bias", float32, [1, VOCAB])
    count = builder.input("num_candidates", int64, [1])
    past = [builder.input(f"past_key_values.0.decoder.{part}", float32, ["rows", 1, "past", 1]) for part in _PARTS]
    cross = [builder.input(f"past_key_values.0.encoder.{part}", float32, ["batch", 1, "source", 1]) for part in _PARTS]
    new = op.Reshape(op.Cast(tokens, to=float32), [-1, 1, 1, 1])
    present = [op.Concat(old, new, axis=2) for old in past]
    state = op.Mod(op.Cast(op.ReduceSum(present[0], [1, 2, 3], keepdims=0), to=int64), STATES)
    batch = op.Shape(cross[1], start=0, end=1)
    rows = op.Reshape(
        op.Expand(op.Reshape(cross[1], [-1, 1]), op.Concat(batch, op.Div(op.Shape(state), batch), axis=0)), [-1]
    )
    places = op.Add(op.Mul(op.Cast(rows, to=int64), STATES), state)
    weights = op.initializer(ir.tensor(table.reshape(-1, VOCAB), name="table"))
    scores, ids = op.TopK(op.Add(op.Gather(weights, places), bias), count, _outputs=2)
    outputs = [scores, ids, *present]
    names = ["candidate_scores", "candidate_ids", *(f"present.0.decoder.{part}" for part in _PARTS)]
    for value, name in zip(outputs, names, strict=True):
        builder.add_output(value, name)
    return ir.Model(builder.graph, ir_version=10)


_PARTS = ("key", "value")


def _builder() -> GraphBuilder:
    return GraphBuilder(ir.Graph([], [], nodes=[], opset_imports={"": 18}))


@dataclass(frozen=True)
class TableCache:
    """Of every row: the first id of its source, and the sum of its tokens."""

    first: IntArray
    sums: IntArray

    def select(self, rows: IntArray) -> TableCache:
        return TableCache(self.first[rows], self.sums[rows])


@dataclass(frozen=True)
class TableSteps:
    """The same as a step model."""

    table: FloatArray

    def start(self, sources: Sequence[Sequence[int]], beam_size: int) -> TableCache:
        first = np.repeat([source[0] for source in sources], beam_size)
        return TableCache(first, np.zeros_like(first))

    def step(self, tokens: IntArray, cache: TableCache, bias: FloatArray, count: int) -> tuple[Candidates, TableCache]:
        sums = cache.sums + tokens
        log_probs = self.table[cache.first, sums % STATES] + bias
        ids = np.argsort(-log_probs, axis=1, kind="stable")[:, :count]
        return Candidates(np.take_along_axis(log_probs, ids, axis=1), ids), TableCache(cache.first, sums)

    def step_logits(self, tokens: IntArray, cache: TableCache) -> tuple[FloatArray, TableCache]:
        raise NotImplementedError
