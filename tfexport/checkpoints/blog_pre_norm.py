"""The pre-norm Transformer of tutorials with W_q, W_k, W_v, W_o and w_1, w_2 in its blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfexport.checkpoints.draft import Draft, complete
from tfexport.checkpoints.imported import Imported, ImportOptions
from tfexport.checkpoints.mapping import Constant, Rule, map_weights
from tfexport.checkpoints.positions import add_positions
from tfexport.checkpoints.weight_files import below, read_weights, shapes_or_none

_EMBEDDING = "src_embedding.weight"
_TABLE = "positional_encoding.pe"
_PUBLISHED = {
    "norm_position": "pre",
    "activation": "relu",
    "scale_embedding": True,
    "positions": "sinusoidal",
    "norm": "layer_norm",
    "norm_eps": 1e-5,
    "pad_id": 0,
    "start_id": 1,
    "eos_id": 2,
}
_CHOICES = {"norm_position": ("pre", "post"), "activation": ("relu", "gelu", "gelu_tanh", "silu")}


@dataclass(frozen=True)
class BlogPreNorm:
    name: str = "pre-norm Transformer with W_q, W_k, W_v, W_o"

    def recognises(self, path: Path) -> bool:
        tensors = shapes_or_none(path) or {}
        return below(tensors, _EMBEDDING) is not None and len(_stacks(tensors)) == 2

    def read(self, path: Path, options: ImportOptions) -> Imported:
        tensors = below(read_weights(path), _EMBEDDING) or {}
        mapped = map_weights(tensors, _rules(_stacks(tensors)))
        found = add_positions(mapped, tensors, dict.fromkeys(("source", "target"), _TABLE)) if _TABLE in tensors else {}
        biased = any(name.endswith("norm.bias") for name in mapped.weights)
        known = {name: value for name, value in _PUBLISHED.items() if biased or name != "norm"}
        constants = () if biased else (Constant("*norm.bias", 0.0),)
        draft = Draft(path, self.name, tensors, mapped, found, known, _choices(biased), constants)
        return complete(draft, options)


def _choices(biased: bool) -> Mapping[str, tuple[Any, ...]]:
    return _CHOICES if biased else {"norm": ("rms_norm", "layer_norm"), **_CHOICES}


def _stacks(names: Iterable[str]) -> dict[str, str]:
    """What the lists of blocks are called: ours to theirs."""
    found = {match.groups() for name in names if (match := re.fullmatch(r"(.+)\.0\.(\w+)\.W_q\.weight", name))}
    decoder = [stack for stack, part in found if part == "cross_attn"]
    encoder = [stack for stack, part in found if part == "self_attn" and stack not in decoder]
    return {"encoder": encoder[0], "decoder": decoder[0]} if len(encoder) == len(decoder) == 1 else {}


def _rules(stacks: Mapping[str, str]) -> list[Rule]:
    rules = [
        Rule("src_embedding.weight", "source_embedding.tokens.weight"),
        Rule("tgt_embedding.weight", "target_embedding.tokens.weight"),
        Rule("fc_out.{x}", "output.{x}"),
    ]
    for ours, theirs in stacks.items():
        attentions = [
            ("self_attn", "self_attention"),
            *([("cross_attn", "cross_attention")] if ours == "decoder" else []),
        ]
        rules += _block(f"{theirs}.{{i}}", f"{ours}_layers.{{i}}", attentions)
        rules += [Rule(f"{ours}{sign}norm.{{x}}", f"{ours}_norm.{{x}}") for sign in "_."]
    return rules


def _block(theirs: str, ours: str, attentions: list[tuple[str, str]]) -> list[Rule]:
    rules = [
        Rule(f"{theirs}.{a}.W_{letter}.{{x}}", f"{ours}.{b}.{part}_proj.{{x}}")
        for a, b in attentions
        for letter, part in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "out"))
    ]
    rules += [Rule(f"{theirs}.ffn.w_{n}.{{x}}", f"{ours}.feed_forward.{p}.{{x}}") for n, p in ((1, "up"), (2, "down"))]
    parts = [*(b for _, b in attentions), "feed_forward"]
    return rules + [
        Rule(f"{theirs}.norm{n}.{{x}}", f"{ours}.{part}_residual.norm.{{x}}") for n, part in enumerate(parts, 1)
    ]


FORMAT = BlogPreNorm()
