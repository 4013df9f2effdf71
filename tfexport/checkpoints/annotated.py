"""The Annotated Transformer's EncoderDecoder (Rush et al., 2018 and 2022 versions)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from tfexport.checkpoints.draft import Draft, complete
from tfexport.checkpoints.imported import Imported, ImportOptions
from tfexport.checkpoints.mapping import Rule, map_weights
from tfexport.checkpoints.positions import add_positions
from tfexport.checkpoints.weight_files import below, read_weights, shapes_or_none

_MARK = "encoder.layers.0.self_attn.linears.0.weight"
_PUBLISHED = {
    "norm_position": "pre",
    "activation": "relu",
    "scale_embedding": True,
    "positions": "sinusoidal",
    "source_add_bos": True,
    "source_add_eos": True,
}


def _attention(theirs: str, ours: str) -> list[Rule]:
    return [
        Rule(f"{theirs}.linears.{n}.{{x}}", f"{ours}.{part}_proj.{{x}}")
        for n, part in enumerate(("q", "k", "v", "out"))
    ]


def _norm(theirs: str, ours: str) -> list[Rule]:
    """a_2 and b_2 of the class's own norm; weight and bias where somebody took nn.LayerNorm."""
    return [
        Rule(f"{theirs}.a_2", f"{ours}.weight"),
        Rule(f"{theirs}.b_2", f"{ours}.bias"),
        Rule(f"{theirs}.{{x}}", f"{ours}.{{x}}"),
    ]


def _layer(stack: str, attentions: tuple[tuple[str, str], ...]) -> list[Rule]:
    theirs, ours = f"{stack}.layers.{{i}}", f"{stack}_layers.{{i}}"
    rules = [rule for a, b in attentions for rule in _attention(f"{theirs}.{a}", f"{ours}.{b}")]
    rules += [
        Rule(f"{theirs}.feed_forward.w_{n}.{{x}}", f"{ours}.feed_forward.{p}.{{x}}")
        for n, p in ((1, "up"), (2, "down"))
    ]
    parts = [*(b for _, b in attentions), "feed_forward"]
    norms = [_norm(f"{theirs}.sublayer.{n}.norm", f"{ours}.{part}_residual.norm") for n, part in enumerate(parts)]
    return [*rules, *(rule for norm in norms for rule in norm)]


_SELF, _CROSS = ("self_attn", "self_attention"), ("src_attn", "cross_attention")
RULES = (
    *_layer("encoder", (_SELF,)),
    *_layer("decoder", (_SELF, _CROSS)),
    *_norm("encoder.norm", "encoder_norm"),
    *_norm("decoder.norm", "decoder_norm"),
    Rule("src_embed.0.lut.weight", "source_embedding.tokens.weight"),
    Rule("tgt_embed.0.lut.weight", "target_embedding.tokens.weight"),
    Rule("generator.proj.{x}", "output.{x}"),
)


@dataclass(frozen=True)
class AnnotatedTransformer:
    name: str = "Annotated Transformer"

    def recognises(self, path: Path) -> bool:
        return below(shapes_or_none(path) or {}, _MARK) is not None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        tensors = below(read_weights(path), _MARK) or {}
        mapped = map_weights(tensors, RULES)
        tables = {side: f"{short}_embed.1.pe" for side, short in (("source", "src"), ("target", "tgt"))}
        found = add_positions(mapped, tensors, tables) if all(name in tensors for name in tables.values()) else {}
        draft = Draft(path, self.name, tensors, mapped, found={**found, **_norm_kind(tensors)}, known=_PUBLISHED)
        return complete(draft, options)


def _norm_kind(tensors: dict[str, Tensor]) -> dict[str, object]:
    own = "encoder.norm.a_2" in tensors
    return {"norm": "unbiased_layer_norm", "norm_eps": 1e-6} if own else {"norm": "layer_norm"}


FORMAT = AnnotatedTransformer()
