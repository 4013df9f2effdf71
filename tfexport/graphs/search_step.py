"""One step of the search as operators of a graph: SPEC.md 4.1, for all sentences at once.

Letters: B sentences, K beams, R = B*K rows, N candidates a row, 2K candidates looked at a sentence.

A candidate that was looked at is a *node*, numbered (step + 1) * 2K + rank within its sentence; so a number also says
how many steps lie before. 0 is the root.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, fields

import onnx_ir as ir
from onnxscript import OpBuilder

BOOL, INT32, INT64 = ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64
FLOAT, DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE


@dataclass(frozen=True)
class LengthPenalty:
    """score(sum, n) = sum / divisors[n] + addends[n], in float64. See SPEC.md, 4.3."""

    divisors: ir.Value  # double [M + 2], by length
    addends: ir.Value  # double [M + 2]

    def score(self, op: OpBuilder, total: ir.Value, length: ir.Value) -> ir.Value:
        """total double [B, …]; length int64, [] or [B, 1]."""
        divided = op.Div(total, op.Gather(self.divisors, length))
        score: ir.Value = op.Add(divided, op.Gather(self.addends, length))
        return score


@dataclass(frozen=True)
class Setting:
    """What stays the same in every step."""

    beams: ir.Value  # int64 [1], K
    looked_at: ir.Value  # int64 [1], 2K
    candidates: ir.Value  # int64 [1], N
    by_sentence: ir.Value  # int64 [2], (B, -1): a shape
    rows: ir.Value  # int64 [1], R
    ranks: ir.Value  # int64 [B, K], 0 to K - 1
    first_rows: ir.Value  # int64 [B, 1], the row of each sentence's beam 0
    limits: ir.Value  # int64 [B, 1], most generated tokens
    quick: ir.Value  # double [1], the lowest number where K hypotheses are enough to end, else infinity
    penalty: LengthPenalty
    eos_id: int
    prefix_ids: tuple[int, ...]  # what every target begins with; neither scored nor counted


@dataclass(frozen=True)
class Beams:
    """What one step leaves to the next."""

    tokens: ir.Value  # int64 [R, 1], the newest of each row
    sums: ir.Value  # double [B, K]; -inf: the row holds no live beam
    nodes: ir.Value  # int64 [B, K], of the newest tokens
    kept_scores: ir.Value  # double [B, K], of finished hypotheses, best first; -inf: none
    kept_nodes: ir.Value  # int64 [B, K]
    cut_sums: ir.Value  # double [B, K], of the live beams when the sentence ended, or now
    cut_nodes: ir.Value  # int64 [B, K]
    searching: ir.Value  # bool [B, 1], the sentence has not ended

    def values(self) -> list[ir.Value]:
        """In the order of the fields."""
        return [getattr(self, field.name) for field in fields(self)]


@dataclass(frozen=True)
class LookedAt:
    """The 2K best candidates of each sentence, best first; all [B, 2K]."""

    totals: ir.Value  # double
    beams: ir.Value  # int64
    tokens: ir.Value  # int64
    log_probs: ir.Value  # float32
    ends: ir.Value  # bool, the token is eos


@dataclass(frozen=True)
class Stepped:
    """What a step results in."""

    beams: Beams
    rows: ir.Value  # int64 [R], the old row that each row continues
    go_on: ir.Value  # bool [], some sentence has not ended
    tokens: ir.Value  # int64 [B * 2K] of the nodes
    log_probs: ir.Value  # float32 [B * 2K]
    parents: ir.Value  # int64 [B * 2K], their nodes
    ranks: ir.Value  # int64 [B * 2K], the beams that they continue


def search_step(
    op: OpBuilder, setting: Setting, step: ir.Value, beams: Beams, log_probs: ir.Value, ids: ir.Value
) -> Stepped:
    """log_probs float32 and ids int64 [R, N]: the best next tokens of each row. step int64 []."""
    length = op.Add(step, 1 - len(setting.prefix_ids))  # of the hypotheses with the new token
    length = op.Max(length, 0) if setting.prefix_ids else length
    first_node = op.Mul(op.Add(step, 1), setting.looked_at)
    looked_at = _rank(op, setting, step, beams.sums, log_probs, ids)
    sums, places = op.TopK(op.Where(looked_at.ends, -math.inf, looked_at.totals), setting.beams, _outputs=2)
    nodes = op.Add(places, first_node)
    kept_scores, kept_nodes = _finish(op, setting, beams, looked_at, length, first_node)
    ended = _ended(op, setting, sums, kept_scores, length)
    still = op.Where(ended, -math.inf, sums)
    parents = op.GatherElements(looked_at.beams, places, axis=1)
    following = Beams(
        tokens=op.Reshape(op.GatherElements(looked_at.tokens, places, axis=1), [-1, 1]),
        sums=still,
        nodes=nodes,
        kept_scores=kept_scores,
        kept_nodes=kept_nodes,
        cut_sums=op.Where(beams.searching, sums, beams.cut_sums),
        cut_nodes=op.Where(beams.searching, nodes, beams.cut_nodes),
        searching=op.Not(ended),
    )
    return Stepped(
        following,
        rows=op.Reshape(op.Add(parents, setting.first_rows), [-1]),
        go_on=op.Greater(op.ReduceMax(still, keepdims=0), -math.inf),
        tokens=op.Reshape(looked_at.tokens, [-1]),
        log_probs=op.Reshape(looked_at.log_probs, [-1]),
        parents=op.Reshape(op.GatherElements(beams.nodes, looked_at.beams, axis=1), [-1]),
        ranks=op.Reshape(looked_at.beams, [-1]),
    )


def _rank(
    op: OpBuilder, setting: Setting, step: ir.Value, sums: ir.Value, log_probs: ir.Value, ids: ir.Value
) -> LookedAt:
    """Steps 1 and 2: of equal totals, TopK takes the first, which is the lower beam, and in it the lower id."""
    forced = None
    if setting.prefix_ids:
        forced = op.Less(step, len(setting.prefix_ids))
        log_probs, ids = _forced(op, setting, step, forced, log_probs, ids)
    totals = op.Add(op.Reshape(sums, [-1, 1]), op.Cast(log_probs, to=DOUBLE))
    best, places = op.TopK(op.Reshape(totals, setting.by_sentence), setting.looked_at, _outputs=2)
    tokens = op.GatherElements(op.Reshape(ids, setting.by_sentence), places, axis=1)
    ends = op.Equal(tokens, setting.eos_id)
    return LookedAt(
        best,
        beams=op.Div(places, setting.candidates),
        tokens=tokens,
        log_probs=op.GatherElements(op.Reshape(log_probs, setting.by_sentence), places, axis=1),
        ends=ends if forced is None else op.And(ends, op.Not(forced)),
    )


def _forced(
    op: OpBuilder, setting: Setting, step: ir.Value, forced: ir.Value, log_probs: ir.Value, ids: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Within the prefix of the target its token is the only candidate, and costs nothing."""
    count = len(setting.prefix_ids)
    token = op.Gather(list(setting.prefix_ids), op.Min(step, count - 1))
    ranks = op.Range(0, op.Squeeze(setting.candidates), 1)
    alone = op.Where(op.Equal(ranks, 0), 0.0, -math.inf)
    return op.Where(forced, alone, log_probs), op.Where(forced, token, ids)


def _finish(
    op: OpBuilder, setting: Setting, beams: Beams, looked_at: LookedAt, length: ir.Value, first_node: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Steps 3 and 4: `eos` among the first K finishes a hypothesis; the best K are kept, of equals the earlier."""
    totals, ends = (op.Slice(x, [0], setting.beams, [1]) for x in (looked_at.totals, looked_at.ends))
    scores = op.Where(ends, setting.penalty.score(op, totals, length), -math.inf)
    kept, places = op.TopK(op.Concat(beams.kept_scores, scores, axis=1), setting.beams, _outputs=2)
    nodes = op.Concat(beams.kept_nodes, op.Add(setting.ranks, first_node), axis=1)
    return kept, op.GatherElements(nodes, places, axis=1)


def _ended(op: OpBuilder, setting: Setting, sums: ir.Value, kept_scores: ir.Value, length: ir.Value) -> ir.Value:
    """Step 5, bool [B, 1]. A sentence without live beams has a bound of -inf, which beats nothing."""
    best, worst = op.Slice(sums, [0], [1], [1]), op.Slice(kept_scores, [-1], [sys.maxsize], [1])
    soon, last = setting.penalty.score(op, best, op.Add(length, 1)), setting.penalty.score(op, best, setting.limits)
    bound = op.Min(op.Max(soon, last), setting.quick)
    ended: ir.Value = op.Or(op.LessOrEqual(bound, worst), op.LessOrEqual(setting.limits, length))
    return ended
