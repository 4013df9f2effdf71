"""The tutorials' greedy loop, for comparison: it runs the decoder over the whole prefix to get each next token.

"The Annotated Transformer", greedy_decode: the source is encoded once, everything else is computed again at every step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tfexport_train.model import EncoderDecoder


@torch.inference_mode()
def recompute_greedy(model: EncoderDecoder, source: Sequence[int], steps: int) -> list[int]:
    """Exactly `steps` tokens for the ids of one sentence, special tokens never among them."""
    config = model.config
    ids = torch.tensor([list(source)])
    mask = torch.ones_like(ids, dtype=torch.bool)
    never = torch.tensor(sorted({config.pad_id, config.start_id, config.eos_id}))
    memory = model.encode(ids, mask)
    target = torch.tensor([[config.start_id]])
    for _ in range(steps):
        logits = model.decode(memory, mask, target)[:, -1]
        token = logits.index_fill(1, never, -torch.inf).argmax(dim=-1, keepdim=True)
        target = torch.cat([target, token], dim=1)
    return target[0, 1:].tolist()
