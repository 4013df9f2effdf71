"""What the two contenders with the `generate` of `transformers` share. Ids in, ids out."""

from __future__ import annotations

from typing import Any

import torch
from transformers import GenerationMixin

from benchmarks.work import Job, Output, Work
from tfexport_train.checkpoint import Checkpoint
from tfexport_train.evaluate import search_target

BATCH = 32  # sentences at once where the whole text is given: it makes no batches itself
LONGEST = 256  # tokens of natural output


class GeneratingContender:
    def __init__(self, model: GenerationMixin, checkpoint: Checkpoint) -> None:
        config, source = checkpoint.config, checkpoint.source
        self.model, self.config = model, config
        self.tokenizer = source.tokenizer(config.unk_id)
        self.never = list(search_target(config, checkpoint.target.tokenizer(config.unk_id).size).never_generated)
        self.before, self.after = [config.start_id] * source.add_bos, [config.eos_id] * source.add_eos

    def prepare(self, work: Work) -> Job:
        sources = [[*self.before, *self.tokenizer.encode(text), *self.after] for text in work.texts]
        order = list(range(len(sources)))
        if work.batch_size is None:  # the fastest order, as the others take
            order.sort(key=lambda i: -len(sources[i]))
        size = work.batch_size or BATCH
        batches = [order[i : i + size] for i in range(0, len(order), size)]
        inputs = [self._padded([sources[i] for i in batch]) for batch in batches]

        def job() -> list[Output]:
            outputs = [output for given in inputs for output in self._generate(given, work)]
            placed = sorted(
                zip((i for batch in batches for i in batch), outputs, strict=True), key=lambda pair: pair[0]
            )
            return [output for _, output in placed]

        return job

    def _padded(self, sources: list[list[int]]) -> dict[str, torch.Tensor]:
        width, pad = max(map(len, sources)), self.config.pad_id
        return {
            "input_ids": torch.tensor([s + [pad] * (width - len(s)) for s in sources]),
            "attention_mask": torch.tensor([[1] * len(s) + [0] * (width - len(s)) for s in sources]),
        }

    @torch.inference_mode()
    def _generate(self, given: dict[str, torch.Tensor], work: Work) -> list[Output]:
        found: Any = self.model.generate(
            **given,
            num_beams=work.beam_size,
            do_sample=False,
            use_cache=True,
            min_new_tokens=work.tokens,
            max_new_tokens=work.tokens or LONGEST,
            length_penalty=1.0,
            early_stopping=True,
            suppress_tokens=self.never if work.exact else None,
        )
        return [Output(self._ids(row), None) for row in found.tolist()]

    def _ids(self, row: list[int]) -> tuple[int, ...]:
        """Without the start token, and without `eos` and what follows it."""
        ids = row[1:]
        return tuple(ids[: ids.index(self.config.eos_id)] if self.config.eos_id in ids else ids)
