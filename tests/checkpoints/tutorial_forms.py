"""The tutorials' classes with random weights, how each is called, and what its file cannot tell."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.checkpoints.tutorial_classes import (
    AnnotatedEncoderDecoder,
    BatchFirstUser,
    BlogTransformer,
    SequenceFirstUser,
    annotated_log_probs,
    with_random_weights,
)
from tests.search import reference
from tfexport.checkpoints import Imported, ImportOptions, open_checkpoint
from tfexport_runtime.options import TranslationOptions

SIZES = 11, 13
PAD, START, EOS, UNK = 0, 1, 2, 3
LONGEST = 50  # tokens that every form has positions for
IDS = {"pad_id": PAD, "start_id": START, "eos_id": EOS, "unk_id": UNK}
TEXT = {"source_add_bos": False, "source_add_eos": True}


@dataclass(frozen=True)
class Form:
    make: Callable[[], nn.Module]
    logits: Callable[[Any, Tensor, Tensor], Tensor]  # (module, source [B, S], target [B, T]) -> [B, T, V]
    facts: Mapping[str, Any]  # what a file of it cannot tell
    name: str  # as the import calls it
    reference: str  # of its factory without arguments

    def module(self) -> nn.Module:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "enable_nested_tensor")
            return with_random_weights(self.make())


def annotated() -> nn.Module:
    return AnnotatedEncoderDecoder(*SIZES)


def blog() -> nn.Module:
    return BlogTransformer(*SIZES)


def sequence_first() -> nn.Module:
    return SequenceFirstUser(SIZES, norm_first=True, activation="gelu")


def batch_first() -> nn.Module:
    return BatchFirstUser(SIZES, norm_first=False, activation="relu")


def _sequence_first_logits(model: SequenceFirstUser, source: Tensor, target: Tensor) -> Tensor:
    s, t = source.shape[1], target.shape[1]
    masks = torch.zeros(s, s, dtype=torch.bool), torch.ones(t, t, dtype=torch.bool).triu(1)
    padding = source == PAD, torch.zeros_like(target, dtype=torch.bool), source == PAD
    out: Tensor = model(source.T, target.T, *masks, *padding).transpose(0, 1)
    return out


def _batch_first_logits(model: BatchFirstUser, source: Tensor, target: Tensor) -> Tensor:
    # A float mask, as the causal one is.
    padding = torch.zeros(source.shape).masked_fill(source == PAD, -torch.inf)
    out: Tensor = model(source, target, padding)
    return out


_ANNOTATED = ("Annotated Transformer", "annotated")
_BLOG = ("pre-norm Transformer with W_q, W_k, W_v, W_o", "blog")
FORMS: dict[str, Form] = {
    "annotated": Form(
        annotated, lambda m, s, t: annotated_log_probs(m, s, t, PAD), {"num_heads": 4, **IDS}, *_ANNOTATED
    ),
    "annotated 3+1": Form(
        lambda: AnnotatedEncoderDecoder(*SIZES, n=(3, 1)),
        lambda m, s, t: annotated_log_probs(m, s, t, PAD),
        {"num_heads": 4, **IDS},
        *_ANNOTATED,
    ),
    "blog": Form(blog, lambda m, s, t: m(s, t), {"num_heads": 4, "unk_id": UNK, **TEXT}, *_BLOG),
    "blog 3+1": Form(
        lambda: BlogTransformer(*SIZES, layers=(3, 1)),
        lambda m, s, t: m(s, t),
        {"num_heads": 4, "unk_id": UNK, **TEXT},
        *_BLOG,
    ),
}


def _stock(norm_first: bool, activation: str, layers: tuple[int, int]) -> dict[str, Form]:
    order = "pre" if norm_first else "post"
    facts = {"num_heads": 4, "norm_position": order, "activation": activation, **IDS, **TEXT}
    end = f"{order}-norm, {activation}, {layers[0]}+{layers[1]}"
    return {
        f"torch, sequence first, {end}": Form(
            lambda: SequenceFirstUser(SIZES, norm_first, activation, layers),
            _sequence_first_logits,
            {**facts, "scale_embedding": True},
            "torch.nn.Transformer",
            "sequence_first",
        ),
        f"torch, batch first, {end}": Form(
            lambda: BatchFirstUser(SIZES, norm_first, activation, layers),
            _batch_first_logits,
            {**facts, "scale_embedding": False},
            "torch.nn.Transformer",
            "batch_first",
        ),
    }


FORMS.update(_stock(True, "gelu", (2, 2)))
FORMS.update(_stock(False, "relu", (2, 2)))
FORMS.update(_stock(True, "relu", (3, 1)))
FORMS.update(_stock(False, "gelu", (3, 1)))


def imported(content: object, path: Path, facts: Mapping[str, Any], **options: Any) -> Imported:
    """Saved, and opened with ids as text."""
    torch.save(content, path)
    return open_checkpoint(path, ImportOptions(**{"config": facts, "ids": True, **options}))


def greedy_by_recompute(form: Form, module: nn.Module, source: Sequence[int], steps: int) -> list[int]:
    """The whole prefix again for each token, until the end; padding and start are never taken."""
    target = [START]
    while len(target) <= steps and target[-1] != EOS:
        logits = form.logits(module, torch.tensor([list(source)]), torch.tensor([target]))[0, -1]
        logits[[PAD, START]] = -torch.inf
        target.append(int(logits.argmax()))
    return [token for token in target[1:] if token != EOS]


def search_by_recompute(
    form: Form, module: nn.Module, source: Sequence[int], options: TranslationOptions
) -> list[reference.Result]:
    """The search of the specification, with the class computing the whole prefix again for every hypothesis."""

    def logits(tokens: tuple[int, ...]) -> np.ndarray:
        found = form.logits(module, torch.tensor([list(source)]), torch.tensor([[START, *tokens]]))
        return found[0, -1].detach().numpy()

    problem = reference.Problem(logits, EOS, (PAD, START), LONGEST, tuple(source))
    return reference.search(problem, options)
