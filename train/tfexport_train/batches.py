"""Batches by token count, of pairs of similar length, in an order that (seed, epoch) alone decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tfexport_train.corpus import EncodedPairs
from tfexport_train.errors import ConfigError


@dataclass(frozen=True)
class Batch:
    """Right-padded ids of B pairs; T counts the target without its last token."""

    source: Tensor  # int64 [B, S]
    target_input: Tensor  # int64 [B, T], from the start token on
    target_output: Tensor  # int64 [B, T], up to the end token
    target_tokens: int  # positions of target_output that are not pad
    source_tokens: int

    def to(self, device: torch.device) -> Batch:
        source, target_input, target_output = (
            t.to(device) for t in (self.source, self.target_input, self.target_output)
        )
        return Batch(source, target_input, target_output, self.target_tokens, self.source_tokens)


@dataclass
class BatchStream:
    """Endless batches, epoch after epoch. `epoch` and `index` are the place of the next one: set them to continue."""

    pairs: EncodedPairs
    max_tokens: int
    seed: int
    pad_id: int
    epoch: int = 0
    index: int = 0

    def __post_init__(self) -> None:
        self._plan_epoch, self._plan = -1, list[NDArray[np.int64]]()

    def __iter__(self) -> Iterator[Batch]:
        while True:
            plan = self.plan()
            if self.index >= len(plan):
                self.epoch, self.index = self.epoch + 1, 0
                continue
            self.index += 1
            yield make_batch(self.pairs, plan[self.index - 1], self.pad_id)

    def plan(self) -> list[NDArray[np.int64]]:
        """The batches of the present epoch, as indices of pairs."""
        if self._plan_epoch != self.epoch:
            self._plan = shuffled_batches(self.pairs, self.max_tokens, self.seed, self.epoch)
            self._plan_epoch = self.epoch
        return self._plan


def shuffled_batches(pairs: EncodedPairs, max_tokens: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Every pair once. Pairs of equal length meet in a new order each epoch, and so do the batches."""
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(pairs.sources))
    batches = _cut(pairs, order, max_tokens)
    return [batches[i] for i in random.permutation(len(batches))]


def ordered_batches(pairs: EncodedPairs, max_tokens: int) -> list[NDArray[np.int64]]:
    """Every pair once, by length, for evaluation."""
    return _cut(pairs, np.arange(len(pairs.sources)), max_tokens)


def make_batch(pairs: EncodedPairs, indices: Sequence[int] | NDArray[np.int64], pad_id: int) -> Batch:
    sources, targets = [pairs.sources[i] for i in indices], [pairs.targets[i] for i in indices]
    target = _padded(targets, pad_id)
    output = target[:, 1:].contiguous()
    return Batch(
        source=_padded(sources, pad_id),
        # Behind a shorter target its end token stands here as input; nothing counts what follows from it.
        target_input=target[:, :-1].contiguous(),
        target_output=output,
        target_tokens=sum(len(t) - 1 for t in targets),
        source_tokens=sum(len(s) for s in sources),
    )


def _cut(pairs: EncodedPairs, order: NDArray[np.int64], max_tokens: int) -> list[NDArray[np.int64]]:
    """Cuts `order`, sorted by length, where sentences * (longest source + longest target) would pass max_tokens."""
    source_lengths = np.array([len(s) for s in pairs.sources])[order]
    target_lengths = np.array([len(t) - 1 for t in pairs.targets])[order]
    by_length = np.lexsort((source_lengths, target_lengths))
    batches, start, longest_source = [], 0, 0
    for i, position in enumerate(by_length):
        source_length, target_length = source_lengths[position], target_lengths[position]
        if source_length + target_length > max_tokens:
            raise ConfigError(
                f"training.max_tokens {max_tokens} is below the longest pair, {source_length + target_length} tokens; "
                "raise it, or lower max_positions of the model to drop such pairs"
            )
        longest_source = max(longest_source, source_length)
        if (i + 1 - start) * (longest_source + target_length) > max_tokens:
            batches.append(order[by_length[start:i]])
            start, longest_source = i, source_length
    if start < len(by_length):
        batches.append(order[by_length[start:]])
    return batches


def _padded(rows: Sequence[NDArray[np.int64]], pad_id: int) -> Tensor:
    padded = np.full((len(rows), max(map(len, rows))), pad_id, dtype=np.int64)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(padded)
