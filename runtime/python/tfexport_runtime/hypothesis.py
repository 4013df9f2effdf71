"""What the search knows of one sentence: its live beams, its finished hypotheses, and when it is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tfexport_runtime.length_penalty import length_penalty
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.step_model import FloatArray, Request, Target

FinishReason = Literal["eos", "length", "cancelled"]


@dataclass(frozen=True)
class Decoded:
    """One hypothesis as ids."""

    ids: tuple[int, ...]  # prefix and generated tokens, without `eos`
    score: float  # after the length penalty
    token_scores: tuple[float, ...]  # log-probability of each id (0 for a hard prefix), then of `eos` if it was reached
    finish_reason: FinishReason
    attention: dict[str, FloatArray] = field(default_factory=dict)  # as of Hypothesis; only of a search that gives it


class Node(NamedTuple):  # one for every row and step: a tuple is made in a quarter of a dataclass's time
    """The newest token of a beam, linked to what came before. The root is what the decoder read before a hypothesis."""

    parent: Node | None
    token: int
    log_prob: float
    total: float  # sum of log-probabilities in float64, in step order
    length: int  # generated tokens; a hard prefix does not count

    def path(self) -> list[Node]:
        """From the first token to this one, without the root."""
        nodes: list[Node] = []
        node: Node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class SentenceSearch:
    """The beams of one sentence. `advance` takes the ranked candidates of one step."""

    def __init__(self, request: Request, options: TranslationOptions, target: Target) -> None:
        self.request = request
        self.done = False
        self.forced = request.prefix if options.prefix_strength == 1 else ()  # given, not scored
        self.limit = length_limit(len(request.source), len(self.forced), options, target)
        self._options = options
        self._target = target
        self._penalty = length_penalty(options)
        self._steps = 0
        self._live = [Node(None, target.start_id, 0.0, 0.0, 0)]
        self._finished: list[tuple[float, Node]] = []  # best first, at most beam_size
        self._cut: FinishReason = "length"
        self.sums = self._padded([0.0])

    @property
    def generated(self) -> int:
        """How many tokens every live beam has, the hard prefix not counted."""
        return self._live[0].length

    def tokens(self) -> list[int]:
        """The newest token of every row, K of them; rows without a live beam repeat the first."""
        newest = [node.token for node in self._live]
        return newest + newest[:1] * (self._options.beam_size - len(newest))

    def history(self, beam: int) -> list[int]:
        """Prefix and generated tokens of a beam; empty for a row that holds none."""
        return [node.token for node in self._live[beam].path()] if beam < len(self._live) else []

    def advance(
        self, beams: Sequence[int], ids: Sequence[int], log_probs: Sequence[float], totals: Sequence[float]
    ) -> list[int]:
        """Takes the 2K best candidates of the step, best first. Returns the parent beam of each new row."""
        step = self._steps - len(self._target.prefix_ids)
        self._steps += 1
        if step < 0:
            self._live = [Node(None, self._target.prefix_ids[step], 0.0, 0.0, 0)]
            return [0] * self._options.beam_size
        if step < len(self.forced):
            self._live = [Node(self._live[0], self.forced[step], 0.0, 0.0, 0)]
            self.sums = self._padded([0.0])
            return [0] * self._options.beam_size
        parents: list[int] = []
        nodes: list[Node] = []
        for rank, (beam, token, log_prob, total) in enumerate(zip(beams, ids, log_probs, totals, strict=True)):
            if total == -math.inf or len(nodes) == self._options.beam_size:
                break  # behind K beams that live on, none is good enough to finish
            parent = self._live[beam]
            node = Node(parent, token, log_prob, total, parent.length + 1)
            if token == self._target.eos_id:
                if rank < self._options.beam_size:
                    self._finish(node)
            else:
                parents.append(beam)
                nodes.append(node)
        self._live = nodes
        self.sums = self._padded([node.total for node in nodes])
        self.done = not nodes or nodes[0].length >= self.limit or self._nothing_better_can_follow()
        return parents + (parents or [0])[:1] * (self._options.beam_size - len(parents))

    def cancel(self) -> None:
        if not self.done:
            self.done, self._cut = True, "cancelled"

    def best_so_far(self) -> tuple[tuple[int, ...], float]:
        """Ids and sum of log-probabilities of the best live beam, or of the best finished hypothesis."""
        ended = self.done and bool(self._finished)
        node = self._finished[0][1] if ended else self._live[0]
        return tuple(n.token for n in node.path()[: -1 if ended else None]), node.total

    def result(self) -> list[Decoded]:
        """Finished hypotheses by score; then, where they are too few, the live beams that were cut."""
        finished: list[tuple[float, Node, FinishReason]] = [(score, node, "eos") for score, node in self._finished]
        cut = [(self._score(node), node, self._cut) for node in self._live]
        best = finished + sorted(cut, key=lambda found: -found[0])
        return [self._decoded(*found) for found in best[: 1 if self._options.sampling else self._options.n_best]]

    def _finish(self, node: Node) -> None:
        self._finished.append((self._score(node), node))
        self._finished.sort(key=lambda pair: -pair[0])  # stable: of equals the earlier stays first
        del self._finished[self._options.beam_size :]

    def _score(self, node: Node) -> float:
        return self._penalty(node.total, node.length) if node.length else 0.0  # cancelled in its prefix

    def _nothing_better_can_follow(self) -> bool:
        """True when no live beam can beat the worst kept hypothesis, however it goes on."""
        if len(self._finished) < self._options.beam_size:
            return False
        if self._options.beam_size == 1 or self._options.early_stopping:
            return True
        best = self._live[0]
        # No later log-probability is positive, and a penalty is monotone in the length: one of the ends is the bound.
        bound = max(self._penalty(best.total, best.length + 1), self._penalty(best.total, self.limit))
        return bound <= self._finished[-1][0]

    def _decoded(self, score: float, node: Node, reason: FinishReason) -> Decoded:
        path = node.path()
        ids = tuple(n.token for n in path if n is not node or reason != "eos")
        return Decoded(ids, score, tuple(n.log_prob for n in path), reason)

    def _padded(self, totals: list[float]) -> list[float]:
        return totals + [-math.inf] * (self._options.beam_size - len(totals))


def length_limit(source: int, forced: int, options: TranslationOptions, target: Target) -> int:
    """The most tokens that may be generated for a source of that many ids; below 1 where a prefix leaves no room."""
    limit = target.max_length - len(target.prefix_ids) - forced
    if options.max_length is not None:
        limit = min(limit, options.max_length)
    if options.max_length_ratio is not None:
        by_ratio = min(options.max_length_ratio * source, target.max_length)  # a ratio may be infinite
        limit = min(limit, int(by_ratio) + options.max_length_extra)
    return limit
