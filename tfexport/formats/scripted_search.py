"""The search of SPEC.md, section 4, in TorchScript: what lets one file translate with no Python and no host program.

All of it is compiled, so it keeps to what that compiler knows. Batches are searched in tensors; a sentence that has
ended leaves its batch.

Letters: B sentences that still run, K beams, R = B*K rows, S source length, P cached length, H heads, D head size,
L decoder layers, T generated tokens, V target vocabulary, N candidates a row.
"""

# Without `from __future__ import annotations`: the compiler wants types, not their names.

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tfexport.graphs.flat_lists import Functions, candidates
from tfexport_runtime.step_model import Target


class Hypotheses(NamedTuple):
    """What a search returns, best first."""

    ids: Tensor  # int64 [B, n_best, T] without `eos`, padded
    lengths: Tensor  # int64 [B, n_best], tokens in `ids`
    scores: Tensor  # float64 [B, n_best]; -inf where there are fewer hypotheses
    ended: Tensor  # bool [B, n_best]; False where the limit of the length cut it


class Beams(NamedTuple):
    """Hypotheses of every sentence that go on, in the order of their sums."""

    ids: Tensor  # int64 [B, K, T]
    sums: Tensor  # float64 [B, K]; -inf where there is none


class Kept(NamedTuple):
    """Hypotheses of every sentence that ended with `eos`, in the order of their scores."""

    ids: Tensor  # int64 [B, K, T or fewer]
    lengths: Tensor  # int64 [B, K]
    scores: Tensor  # float64 [B, K]; -inf where there is none


class Ranked(NamedTuple):
    """The first 2K continuations of every sentence, best first."""

    totals: Tensor  # float64 [B, 2K]
    parents: Tensor  # int64 [B, 2K], beams
    ids: Tensor  # int64 [B, 2K]


class ScriptedTranslator(nn.Module):
    """Four methods over token ids: `encode`, `step`, `greedy` and `beam`."""

    prefix: list[int]
    bias: Tensor  # float32 [1, V], -inf on what is never generated

    def __init__(self, graphs: Functions, target: Target, pad_id: int, cache_shape: tuple[int, int, int]) -> None:
        """graphs: traced; cache_shape: L, H, D."""
        super().__init__()
        self.graphs = graphs
        self.layers, self.heads, self.head_size = cache_shape
        self.vocab_size, self.pad_id = target.vocab_size, pad_id
        self.start_id, self.eos_id = target.start_id, target.eos_id
        self.prefix = list(target.prefix_ids)
        self.longest = target.max_length - len(target.prefix_ids)
        bias = torch.zeros(1, target.vocab_size)
        bias[:, list(target.never_generated)] = -math.inf
        self.register_buffer("bias", bias)

    @torch.jit.export
    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """int64 and int32 [B, S] -> keys and values of every decoder layer by turns, 2L of [B, H, S, D].

        What was asked for at export stands behind them: the encoder's states here, what is looked at in `step`.
        """
        return self.graphs.encode(input_ids, attention_mask)

    @torch.jit.export
    def step(
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        encoder_attention_mask: Tensor,
        logit_bias: Tensor,
        num_candidates: Tensor,
        past: list[Tensor],
        cross: list[Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """As in SPEC.md, section 3 -> candidates' scores and ids [R, N], logits [R, V], 2L of [R, H, P + 1, D]."""
        logits, present = self.graphs.decode_step(input_ids, past_lengths, encoder_attention_mask, past, cross)
        scores, ids = candidates(logits, logit_bias, int(num_candidates))
        return scores, ids, logits, present

    @torch.jit.export
    def greedy(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        max_length: int = 0,
        max_length_ratio: float = 2.0,
        max_length_extra: int = 50,
    ) -> Hypotheses:
        """As `beam` with one beam."""
        return self.beam(input_ids, attention_mask, 1, 1, max_length, max_length_ratio, max_length_extra, 1.0, 0, False)

    @torch.jit.export
    def beam(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        beam_size: int = 4,
        n_best: int = 1,
        max_length: int = 0,
        max_length_ratio: float = 2.0,
        max_length_extra: int = 50,
        alpha: float = 1.0,
        length_offset: int = 0,
        early_stopping: bool = False,
    ) -> Hypotheses:
        """input_ids int64 [B, S], padded at the end, attention_mask int32 [B, S], 1 on real tokens.

        The other arguments are the options of SPEC.md, section 5, with the length penalty `average`; max_length 0 is
        none, and so is an infinite ratio.
        """
        if not 1 <= n_best <= beam_size:
            raise ValueError("n_best must be from 1 to beam_size")
        limits = self.limits(attention_mask, max_length, max_length_ratio, max_length_extra)
        longest = int(limits.max())
        penalties = self.penalties(longest, alpha, length_offset)
        stops_when_full = early_stopping or beam_size == 1

        batch = input_ids.shape[0]
        found = self.nothing_found(batch, n_best, longest)
        running = torch.arange(batch)  # the sentence of each place
        mask = attention_mask
        cross = self.graphs.encode(input_ids, mask)[: 2 * self.layers]
        newest, past = self.begin(batch * beam_size, mask, cross)
        beams, kept = no_beams(batch, beam_size), no_kept(batch, beam_size)
        while running.numel() > 0:
            logits, present = self.read(newest, mask, past, cross)
            log_probs, ids = candidates(logits, self.bias, min(beam_size + 1, self.vocab_size))
            ranked = rank(beams.sums, log_probs, ids)
            kept = keep_ended(kept, beams, ranked, self.eos_id, penalties)
            beams, parents = go_on(beams, ranked, self.eos_id)
            done = ended(kept, beams, limits, penalties, stops_when_full)

            places = torch.arange(running.numel())
            if bool(done.any()):
                store(found, running, torch.nonzero(done)[:, 0], kept, beams, penalties)
                places = torch.nonzero(~done)[:, 0]
                running, limits, mask = running[places], limits[places], mask[places]
                cross = [tensor.index_select(0, places) for tensor in cross]
                beams = Beams(beams.ids[places], beams.sums[places])
                kept = Kept(kept.ids[places], kept.lengths[places], kept.scores[places])
            rows = (places[:, None] * beam_size + parents[places]).flatten()
            newest = beams.ids[:, :, -1].reshape(-1, 1)
            past = present
            if not torch.equal(rows, torch.arange(present[0].shape[0])):
                past = [tensor.index_select(0, rows) for tensor in present]
        width = int(found.lengths.max())
        return Hypotheses(found.ids[:, :, :width], found.lengths, found.scores, found.ended)

    def limits(self, mask: Tensor, max_length: int, ratio: float, extra: int) -> Tensor:
        """The most tokens that may be generated, int64 [B]."""
        limits = torch.full((mask.shape[0],), self.longest)
        if max_length > 0:
            limits = limits.clamp_max(max_length)
        by_ratio = (mask.sum(1).double() * ratio).clamp_max(self.longest + len(self.prefix)).long() + extra
        limits = torch.minimum(limits, by_ratio)
        if bool((limits < 1).any()):
            raise ValueError("no room for a token: raise max_length, max_length_ratio or max_length_extra")
        return limits

    def penalties(self, longest: int, alpha: float, offset: int) -> Tensor:
        """What the sum of a hypothesis of n tokens is divided by, float64 [longest + 2] by n."""
        return (torch.arange(longest + 2, dtype=torch.float64) + offset).clamp_min(1.0).pow(alpha)

    def nothing_found(self, batch: int, n_best: int, longest: int) -> Hypotheses:
        return Hypotheses(
            torch.full((batch, n_best, longest), self.pad_id),
            torch.zeros((batch, n_best), dtype=torch.int64),
            torch.full((batch, n_best), -math.inf, dtype=torch.float64),
            torch.zeros((batch, n_best), dtype=torch.bool),
        )

    def begin(self, rows: int, mask: Tensor, cross: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The first token to be read whose continuation is searched, int64 [R, 1], and the cache before it."""
        past = [torch.zeros(rows, self.heads, 0, self.head_size) for _ in range(2 * self.layers)]
        newest = torch.full((rows, 1), self.start_id)
        for token in self.prefix:
            _, past = self.read(newest, mask, past, cross)
            newest = torch.full((rows, 1), token)
        return newest, past

    def read(
        self, newest: Tensor, mask: Tensor, past: list[Tensor], cross: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """The next token of rows that are equally long: logits [R, V], and the cache with it."""
        past_lengths = torch.full((newest.shape[0],), past[0].shape[2], dtype=torch.int32)
        logits, given = self.graphs.decode_step(newest, past_lengths, mask, past, cross)
        return logits, given[: 2 * self.layers]


def no_beams(batch: int, beam_size: int) -> Beams:
    """At first only beam 0 lives."""
    sums = torch.full((batch, beam_size), -math.inf, dtype=torch.float64)
    sums[:, 0] = 0.0
    return Beams(torch.zeros((batch, beam_size, 0), dtype=torch.int64), sums)


def no_kept(batch: int, beam_size: int) -> Kept:
    return Kept(
        torch.zeros((batch, beam_size, 0), dtype=torch.int64),
        torch.zeros((batch, beam_size), dtype=torch.int64),
        torch.full((batch, beam_size), -math.inf, dtype=torch.float64),
    )


def rank(sums: Tensor, log_probs: Tensor, ids: Tensor) -> Ranked:
    """sums float64 [B, K], log_probs float32 [R, N], ids int64 [R, N]."""
    batch, beams = sums.shape
    count = ids.shape[1]
    totals = (sums.reshape(-1, 1) + log_probs.double()).reshape(batch, beams * count)
    if bool(totals.isnan().any()):
        raise ValueError("the decoder gave NaN")
    # Stable: of equal totals the lower beam stays first, and in it the lower id.
    totals, order = torch.sort(totals, stable=True, dim=1, descending=True)
    order = order[:, : 2 * beams]
    return Ranked(
        totals[:, : 2 * beams],
        torch.div(order, count, rounding_mode="floor"),
        ids.reshape(batch, beams * count).gather(1, order),
    )


def keep_ended(kept: Kept, beams: Beams, ranked: Ranked, eos_id: int, penalties: Tensor) -> Kept:
    """With the continuations that end now; the best K remain, of equal scores the earlier."""
    beam_size = beams.sums.shape[1]
    totals, ids = ranked.totals[:, :beam_size], ranked.ids[:, :beam_size]
    ends = (ids == eos_id) & (totals > -math.inf)
    if not bool(ends.any()):
        return kept
    length = beams.ids.shape[2]  # without `eos`
    scores = (totals / penalties[length + 1]).masked_fill(~ends, -math.inf)
    scores, order = torch.sort(torch.cat([kept.scores, scores], 1), stable=True, dim=1, descending=True)
    order = order[:, :beam_size]
    lengths = torch.cat([kept.lengths, torch.full_like(ids, length)], 1)
    histories = torch.cat([widened(kept.ids, length), of_beams(beams.ids, ranked.parents[:, :beam_size])], 1)
    return Kept(of_beams(histories, order), lengths.gather(1, order), scores[:, :beam_size])


def go_on(beams: Beams, ranked: Ranked, eos_id: int) -> tuple[Beams, Tensor]:
    """The next live beams, and the beam that each continues, int64 [B, K]. Where too few live, the first repeats."""
    beam_size = beams.sums.shape[1]
    lives = (ranked.ids != eos_id) & (ranked.totals > -math.inf)
    live, order = torch.sort(lives, stable=True, dim=1, descending=True)
    live = live[:, :beam_size]
    order = torch.where(live, order[:, :beam_size], order[:, :1])
    parents = ranked.parents.gather(1, order)
    ids = torch.cat([of_beams(beams.ids, parents), ranked.ids.gather(1, order)[:, :, None]], 2)
    return Beams(ids, ranked.totals.gather(1, order).masked_fill(~live, -math.inf)), parents


def ended(kept: Kept, beams: Beams, limits: Tensor, penalties: Tensor, stops_when_full: bool) -> Tensor:
    """Which sentences are done, bool [B]."""
    length, worst, best = beams.ids.shape[2], kept.scores[:, -1], beams.sums[:, 0]
    settled = worst > -math.inf
    if not stops_when_full:
        # Sums never rise and penalties are monotone in the length: one of the ends is the bound.
        bound = torch.maximum(best / penalties[length + 1], best / penalties[limits])
        settled = settled & (bound <= worst)
    return (best == -math.inf) | (limits <= length) | settled


def store(found: Hypotheses, running: Tensor, done: Tensor, kept: Kept, beams: Beams, penalties: Tensor) -> None:
    """Writes the results of the places `done`: what was kept, then the beams that were cut."""
    n_best, length = found.ids.shape[1], beams.ids.shape[2]
    cut = beams.sums[done] / penalties[length]
    scores = torch.cat([kept.scores[done], cut], 1)
    order = torch.sort(scores > -math.inf, stable=True, dim=1, descending=True)[1][:, :n_best]
    scores = scores.gather(1, order)
    there = scores > -math.inf
    ended = (order < kept.scores.shape[1]) & there
    lengths = torch.cat([kept.lengths[done], torch.full_like(cut, length, dtype=torch.int64)], 1).gather(1, order)
    ids = of_beams(torch.cat([widened(kept.ids[done], length), beams.ids[done]], 1), order)
    lengths = lengths.masked_fill(~there, 0)
    padding = torch.arange(length) >= lengths[:, :, None]
    places = running[done]
    found.ids[places, :, :length] = torch.where(padding, found.ids[places, :, :length], ids)
    found.lengths[places] = lengths
    found.scores[places] = scores
    found.ended[places] = ended


def of_beams(ids: Tensor, order: Tensor) -> Tensor:
    """ids [B, K, T], order [B, K'] -> [B, K', T]"""
    return ids.gather(1, order[:, :, None].expand(-1, -1, ids.shape[2]))


def widened(ids: Tensor, length: int) -> Tensor:
    """[B, K, T] -> [B, K, length]"""
    return F.pad(ids, (0, length - ids.shape[2]))
