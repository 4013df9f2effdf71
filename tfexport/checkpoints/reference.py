"""Compares an import with the user's own class: `--reference module:factory`.

The factory is the user's own code, named explicitly. It takes nothing and gives a module with the weights' own names.
Its forward takes (source, target), and masks where it names them, and gives logits or log-probabilities.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tfexport.checkpoints.expected import model_without_memory
from tfexport.checkpoints.imported import shortened
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.errors import CheckpointError

_LIMIT = 1e-4  # of logits near 10; larger ones may differ more
_SENTENCES, _SOURCE, _TARGET = 2, 7, 5  # all different, so that no axis is mistaken for another


class ReferenceModelError(CheckpointError):
    """The user's class cannot be loaded or called."""


class ReferenceMismatchError(ReferenceModelError):
    """The user's class computes something else."""

    exit_status = 3


@dataclass(frozen=True)
class Verdict:
    """The configuration that computes what the reference computes."""

    name: str
    config: EncoderDecoderConfig
    difference: float  # the largest of any logit


def compare_with_reference(
    name: str,
    tensors: Mapping[str, Tensor],
    candidates: Sequence[EncoderDecoderConfig],
    weights_of: Callable[[EncoderDecoderConfig], Mapping[str, Tensor]],
    path: Path,
) -> Verdict:
    """The nearest candidate. tensors: the file's, under its own names.

    Raises ReferenceModelError, and its kind ReferenceMismatchError where none is near enough.
    """
    source, target = _ids(candidates[0])
    wanted = _Reference(name, tensors, path).logits(source, target, candidates[0].target_vocab_size)
    normalised = bool(wanted.logsumexp(-1).abs().max() < 1e-3)  # log-probabilities instead of logits
    differences = []
    for config in candidates:
        logits = _logits(config, weights_of(config), source, target)
        differences.append(float(((logits.log_softmax(-1) if normalised else logits) - wanted).abs().max()))
    best = min(range(len(candidates)), key=lambda i: differences[i] if differences[i] >= 0 else float("inf"))
    verdict = Verdict(name, candidates[best], differences[best])
    if not verdict.difference <= _LIMIT * max(1.0, float(wanted.abs().max()) / 10):
        config = verdict.config
        form = f"norm_position {config.norm_position}, activation {config.activation}, {config.num_heads} heads"
        raise ReferenceMismatchError(
            f"{path}: computes something else than {name}: of {len(candidates)} forms the nearest ({form}) still "
            f"differs by {verdict.difference:.3g}"
        )
    return verdict


@torch.inference_mode()
def _logits(config: EncoderDecoderConfig, weights: Mapping[str, Tensor], source: Tensor, target: Tensor) -> Tensor:
    model = model_without_memory(config)
    model.load_state_dict(weights, assign=True)
    model.eval()
    mask = torch.ones_like(source, dtype=torch.bool)
    return model.decode(model.encode(source, mask), mask, target)


def _ids(config: EncoderDecoderConfig) -> tuple[Tensor, Tensor]:
    """Random tokens without padding, [2, 7] and [2, 5]."""
    random = torch.Generator().manual_seed(0)

    def draw(size: int, length: int) -> Tensor:
        allowed = torch.tensor([i for i in range(size) if i != config.pad_id])
        return allowed[torch.randint(len(allowed), (_SENTENCES, length), generator=random)]

    return draw(config.source_vocab_size, _SOURCE), draw(config.target_vocab_size, _TARGET)


class _Reference:
    """The user's module with the file's weights."""

    def __init__(self, name: str, tensors: Mapping[str, Tensor], path: Path) -> None:
        self.name = name
        self.module = _built(name)
        try:
            self.module.load_state_dict(dict(tensors))
        except RuntimeError as error:
            problems = [line.strip() for line in str(error).splitlines()[1:]]
            raise ReferenceModelError(f"{path}: does not load into {name}: {shortened(problems, 3)}") from error
        self.module.float().eval()
        self.by_torch = any(isinstance(part, nn.MultiheadAttention) for part in self.module.modules())

    @torch.inference_mode()
    def logits(self, source: Tensor, target: Tensor, vocab_size: int) -> Tensor:
        """source [B, S], target [B, T] -> [B, T, V], whichever axis the module wants first.

        Raises ReferenceModelError.
        """
        wanted = (*target.shape, vocab_size)
        reasons = []
        for turned in (False, True):
            try:
                with warnings.catch_warnings(action="ignore"):  # they are the user's own
                    out = self._call(source, target, turned, vocab_size)
            except (RuntimeError, AssertionError, ValueError, IndexError, TypeError) as error:
                reasons.append(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
                continue
            if tuple(out.shape) == wanted:
                return out.float()
            reasons.append(f"it gave {list(out.shape)}, expected logits {list(wanted)}")
        raise ReferenceModelError(
            f"{self.name}: cannot be called with (source, target): {reasons[0]}; let the factory give a module whose "
            "forward takes both as [B, length] and returns logits"
        )

    def _call(self, source: Tensor, target: Tensor, turned: bool, vocab_size: int) -> Tensor:
        masks = self._masks(source, target)
        out = self.module(*((source.T, target.T) if turned else (source, target)), **masks)
        if not isinstance(out, Tensor):
            raise TypeError(f"it gave a {type(out).__name__}, expected a tensor")
        generator = getattr(self.module, "generator", None)
        if out.shape[-1] != vocab_size and isinstance(generator, nn.Module):
            out = generator(out)
        result: Tensor = out.transpose(0, 1) if turned else out
        return result

    def _masks(self, source: Tensor, target: Tensor) -> dict[str, Tensor]:
        """By the names of the parameters behind the first two; PyTorch's own attention and tutorials differ in form."""
        own = list(inspect.signature(self.module.forward).parameters.values())[2:]
        found = {p.name: self._mask(p.name.lower(), source, target) for p in own}
        missing = [p.name for p in own if p.default is p.empty and found[p.name] is None]
        if missing:
            raise TypeError(f"parameter {missing[0]} is not known")
        return {name: mask for name, mask in found.items() if mask is not None}

    def _mask(self, name: str, source: Tensor, target: Tensor) -> Tensor | None:
        of_target = any(part in name for part in ("tgt", "trg", "target"))
        ids = target if of_target else source
        if "mask" not in name:
            return None
        if "pad" in name:
            return torch.zeros_like(ids, dtype=torch.bool)
        length = ids.shape[1]
        visible = torch.ones(length, length, dtype=torch.bool)
        visible = visible.tril() if of_target else visible
        if self.by_torch:  # True is what cannot be seen
            return ~visible
        return visible.expand(len(ids), length, length) if of_target else visible[:1].expand(len(ids), 1, length)


def _built(name: str) -> nn.Module:
    """Imports the module from the present folder as well, as `python -m` does. Raises ReferenceModelError."""
    module_name, sign, factory_name = name.partition(":")
    if not sign:
        raise ReferenceModelError(f"--reference {name}: expected module:factory, such as my_model:make_model")
    sys.path.insert(0, str(Path.cwd()))
    try:
        factory: Any = getattr(importlib.import_module(module_name), factory_name)
        with warnings.catch_warnings(action="ignore"):
            made = factory()
    except Exception as error:  # it is foreign code, which may raise anything
        raise ReferenceModelError(f"{name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if not isinstance(made, nn.Module):
        raise ReferenceModelError(f"{name}: gave a {type(made).__name__}, expected a torch.nn.Module")
    return made
