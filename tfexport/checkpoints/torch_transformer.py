"""PyTorch's own nn.Transformer inside somebody's module, with embeddings, positions and a projection of any name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from tfexport.checkpoints.draft import Draft, complete
from tfexport.checkpoints.imported import Imported, ImportOptions
from tfexport.checkpoints.mapping import Constant, Mapped, Rule, map_weights
from tfexport.checkpoints.positions import add_positions
from tfexport.checkpoints.roles import ROLES, Roles, find_roles
from tfexport.checkpoints.weight_files import read_weights, shapes_or_none

_PUBLISHED = {"norm": "layer_norm", "norm_eps": 1e-5}
_CHOICES = {
    "norm_position": ("post", "pre"),
    "activation": ("relu", "gelu", "gelu_tanh", "silu"),
    "scale_embedding": (True, False),
    "positions": ("sinusoidal", "none"),
}


@dataclass(frozen=True)
class TorchTransformer:
    name: str = "torch.nn.Transformer"

    def recognises(self, path: Path) -> bool:
        return len(_stacks(shapes_or_none(path) or {})) == 2

    def read(self, path: Path, options: ImportOptions) -> Imported:
        tensors = read_weights(path)
        mapped = map_weights(
            tensors, [rule for ours, theirs in _stacks(tensors).items() for rule in _stack(theirs, ours)]
        )
        width = tensors[f"{_stacks(tensors)['encoder']}layers.0.norm1.weight"].shape[0]
        roles = find_roles({name: tensors[name] for name in mapped.unused}, width, options.config, path)
        found = _take(roles, mapped, tensors)
        biased = any(name.endswith("norm.bias") for name in mapped.weights)
        draft = Draft(
            path,
            self.name,
            tensors,
            mapped,
            found,
            _PUBLISHED,
            _CHOICES,
            constants=() if biased else (Constant("*norm.bias", 0.0),),
            own_facts=ROLES,
            missing=roles.missing,
            notes=roles.notes,
        )
        return complete(draft, options)


def _take(roles: Roles, mapped: Mapped, tensors: Mapping[str, Tensor]) -> dict[str, object]:
    """Embeddings, projection and positions, by the roles that were found."""
    ours = {
        "source_embedding": "source_embedding.tokens.weight",
        "target_embedding": "target_embedding.tokens.weight",
        "output": "output.weight",
    }
    rules = [Rule(roles.names[role], name) for role, name in ours.items() if role in roles.names]
    bias = roles.names.get("output", "").removesuffix("weight") + "bias"
    added = map_weights({name: tensors[name] for name in mapped.unused}, [*rules, Rule(bias, "output.bias")])
    mapped.weights.update(added.weights)
    mapped.matches += added.matches
    mapped.unused[:] = added.unused
    tables = {
        side: roles.names[f"{side}_positions"] for side in ("source", "target") if f"{side}_positions" in roles.names
    }
    return add_positions(mapped, tensors, tables) if len(tables) == 2 else {}


def _stacks(names: Iterable[str]) -> dict[str, str]:
    """The prefix of each stack, ours to theirs, such as {"encoder": "transformer.encoder."}."""
    names = set(names)
    found = {
        match.group(1) for name in names if (match := re.fullmatch(r"(.*)layers\.0\.self_attn\.in_proj_weight", name))
    }
    decoder = {prefix for prefix in found if f"{prefix}layers.0.multihead_attn.in_proj_weight" in names}
    encoder = found - decoder
    return {"encoder": min(encoder), "decoder": min(decoder)} if len(encoder) == len(decoder) == 1 else {}


def _stack(theirs: str, ours: str) -> list[Rule]:
    attentions = [
        ("self_attn", "self_attention"),
        *([("multihead_attn", "cross_attention")] if ours == "decoder" else []),
    ]
    a, b = f"{theirs}layers.{{i}}", f"{ours}_layers.{{i}}"
    rules = []
    for packed, part in attentions:
        split = tuple(f"{b}.{part}.{p}_proj.{{x}}" for p in "qkv")
        rules += [Rule(f"{a}.{packed}.in_proj_{{x}}", split)]
        rules += [Rule(f"{a}.{packed}.out_proj.{{x}}", f"{b}.{part}.out_proj.{{x}}")]
    rules += [Rule(f"{a}.linear{n}.{{x}}", f"{b}.feed_forward.{p}.{{x}}") for n, p in ((1, "up"), (2, "down"))]
    parts = [*(part for _, part in attentions), "feed_forward"]
    rules += [Rule(f"{a}.norm{n}.{{x}}", f"{b}.{part}_residual.norm.{{x}}") for n, part in enumerate(parts, 1)]
    return [*rules, Rule(f"{theirs}norm.{{x}}", f"{ours}_norm.{{x}}")]


FORMAT = TorchTransformer()
