"""From the nodes of a search to its hypotheses, as operators of a graph: SPEC.md 4.1, "Result".

Letters: B sentences, K beams, R = B*K rows, S source length, T steps of the search, C = 2K candidates looked at a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir
from onnxscript import OpBuilder

from tfexport.graphs.search_step import FLOAT, INT64, Beams, Setting


@dataclass(frozen=True)
class Found:
    """What the loop over steps leaves."""

    beams: Beams
    tokens: ir.Value  # int64 [T, B * C] of the nodes
    log_probs: ir.Value  # float32 [T, B * C]
    parents: ir.Value  # int64 [T, B * C]
    ranks: ir.Value | None = None  # int64 [T, B * C], beams that the nodes continue; only with attention
    attention: Mapping[str, ir.Value] = field(default_factory=dict)  # float32 [T, R, heads, S], by name of the output


def hypotheses(op: OpBuilder, setting: Setting, found: Found, pad_id: int) -> dict[str, ir.Value]:
    """The K best of every sentence, by the names of search_signature."""
    scores, nodes, finished = _best(op, setting, found.beams)
    steps = op.Shape(found.tokens, start=0, end=1)
    before = len(setting.prefix_ids)
    path = _path(op, setting, nodes, _by_sentence(op, setting, found.parents), steps)  # [B, K, T]
    path = op.Slice(path, [before], steps, [2]) if before else path
    tokens, log_probs = (_taken(op, _by_sentence(op, setting, x), path) for x in (found.tokens, found.log_probs))
    taken = op.Max(op.Sub(op.Div(nodes, setting.looked_at), before), 0)  # nodes of each hypothesis, that of eos too
    lengths = op.Max(op.Sub(taken, op.Cast(finished, to=INT64)), 0)
    places = op.Range(0, op.Squeeze(op.Sub(steps, before)), 1)
    is_taken = op.Less(places, op.Unsqueeze(taken, [2]))  # bool [B, K, T]
    return {
        "sequences": op.Where(op.Less(places, op.Unsqueeze(lengths, [2])), tokens, pad_id),
        "lengths": lengths,
        "scores": op.Cast(scores, to=FLOAT),
        "token_scores": op.Where(is_taken, log_probs, 0.0),
        "finished": finished,
        **_attention(op, setting, found, path, is_taken),
    }


def _attention(
    op: OpBuilder, setting: Setting, found: Found, path: ir.Value, is_taken: ir.Value
) -> dict[str, ir.Value]:
    """What the step and row that each node of a path comes from looked at: float32 [B, K, T, heads, S]."""
    if found.ranks is None:
        return {}
    step = op.Max(op.Sub(op.Div(path, setting.looked_at), 1), 0)
    rank = _taken(op, _by_sentence(op, setting, found.ranks), path)
    row = op.Add(rank, op.Unsqueeze(setting.first_rows, [2]))
    place = op.Concat(op.Unsqueeze(step, [-1]), op.Unsqueeze(row, [-1]), axis=-1)
    is_seen = op.Unsqueeze(is_taken, [-2, -1])
    return {name: op.Where(is_seen, op.GatherND(seen, place), 0.0) for name, seen in found.attention.items()}


def _best(op: OpBuilder, setting: Setting, beams: Beams) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The kept hypotheses, then the live beams, K of all that: scores, newest nodes, finished; each [B, K].

    Both are in order: the live beams of a sentence are equally long, so their scores are ordered as their sums are.
    """
    length = op.Max(op.Sub(op.Div(beams.cut_nodes, setting.looked_at), len(setting.prefix_ids)), 1)
    cut_scores = setting.penalty.score(op, beams.cut_sums, length)
    kept = op.Cast(op.Greater(beams.kept_scores, -math.inf), to=INT64)
    count = op.ReduceSum(kept, [1], keepdims=1)  # [B, 1]
    finished = op.Less(setting.ranks, count)
    places = op.Where(finished, setting.ranks, op.Add(setting.ranks, op.Sub(setting.beams, count)))
    scores = op.GatherElements(op.Concat(beams.kept_scores, cut_scores, axis=1), places, axis=1)
    nodes = op.GatherElements(op.Concat(beams.kept_nodes, beams.cut_nodes, axis=1), places, axis=1)
    return scores, op.Where(op.Greater(scores, -math.inf), nodes, 0), finished


def _path(op: OpBuilder, setting: Setting, nodes: ir.Value, parents: ir.Value, steps: ir.Value) -> ir.Value:
    """The nodes of all steps on the way to `nodes` [B, K]: int64 [B, K, T]. Behind a hypothesis its last one stands."""

    def body(op: OpBuilder, i: ir.Value, searching: ir.Value, node: ir.Value) -> list[ir.Value]:
        here = op.Equal(op.Div(node, setting.looked_at), op.Sub(steps, i))
        before = op.Where(here, _taken(op, parents, node), node)
        return [op.Identity(searching), before, op.Reshape(node, [-1])]

    graph = op.builder.subgraph(
        body,
        [
            ir.Value(name="i", type=ir.TensorType(INT64), shape=ir.Shape([])),
            ir.Value(name="searching", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([])),
            ir.Value(name="node", type=ir.TensorType(INT64)),
        ],
        [ir.Value(name="go_on"), ir.Value(name="before"), ir.Value(name="passed")],
        name="back",
    )
    _, backwards = op.Loop(op.Squeeze(steps), True, nodes, body=graph, _outputs=2)  # [T, B * K]
    path = op.Slice(backwards, [-1], [-(2**62)], [0], [-1])
    shape = op.Concat(steps, op.Shape(nodes), axis=0)
    by_sentence: ir.Value = op.Transpose(op.Reshape(path, shape), perm=[1, 2, 0])
    return by_sentence


def _taken(op: OpBuilder, table: ir.Value, nodes: ir.Value) -> ir.Value:
    """From a table [B, (1 + T) * C] what belongs to the nodes [B, …]."""
    taken: ir.Value = op.GatherND(table, op.Unsqueeze(nodes, [-1]), batch_dims=1)
    return taken


def _by_sentence(op: OpBuilder, setting: Setting, of_nodes: ir.Value) -> ir.Value:
    """[T, B * C] -> [B, (1 + T) * C], where the number of a node is its place. In front there are C roots."""
    shape = op.Concat([-1], op.Slice(setting.by_sentence, [0], [1]), setting.looked_at, axis=0)
    table = op.Transpose(op.Reshape(of_nodes, shape), perm=[1, 0, 2])
    with_roots: ir.Value = op.Pad(
        op.Reshape(table, setting.by_sentence), op.Concat([0], setting.looked_at, [0, 0], axis=0)
    )
    return with_roots
