"""BART and its relatives: mBART, M2M100 and NLLB, Marian, Pegasus. One layout of weights, five forms of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tfexport.checkpoints.hugging_face.folder import Folder, Settings
from tfexport.checkpoints.hugging_face.layout import Family, Layout, PositionTable
from tfexport.checkpoints.mapping import Rule, same

_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "silu",
    "silu": "silu",
}
_RESERVED_POSITIONS = 2  # rows of BART's learned tables before that of the first token
_EMBEDDING_RULES = (
    Rule("decoder.embed_tokens.weight", "target_embedding.tokens.weight"),
    Rule("lm_head.weight", "output.weight"),
    Rule("final_logits_bias", "output.bias", squeeze=True),
)


@dataclass(frozen=True)
class _Form:
    """What config.json does not say, because the class of the model decides it."""

    pre_norm: bool  # with a final norm on both stacks
    embedding_norm: bool
    positions: PositionTable | None = None  # None: a learned table in the file
    activation: str = "gelu"
    scale_embedding: bool = False

    def layout(self, folder: Folder, tensors: Mapping[str, Tensor]) -> Layout:
        config = folder.config
        self._refuse_contradictions(config)
        tied = config.flag("tie_word_embeddings", True)
        separate = separate_tables(config, tensors)
        shared = config.flag("share_encoder_decoder_embeddings", True) and not separate
        fields = {
            "d_model": config.integer("d_model"),
            "num_heads": _same_on_both_sides(config, "attention_heads"),
            "d_ff": _same_on_both_sides(config, "ffn_dim"),
            "num_encoder_layers": config.integer("encoder_layers"),
            "num_decoder_layers": config.integer("decoder_layers"),
            "max_positions": config.integer("max_position_embeddings", 1024),
            "positions": "learned",
            "scale_embedding": config.flag("scale_embedding", self.scale_embedding),
            "embedding_norm": self.embedding_norm,
            "norm_position": "pre" if self.pre_norm else "post",
            "final_norm": self.pre_norm,
            "activation": config.choice("activation_function", _ACTIVATIONS, self.activation),
            "share_embeddings": shared,
            "tie_output": tied,
        }
        rules = (*_stack("encoder"), *_stack("decoder"), *embedding_rules(tensors, separate), *self._position_rules())
        drop = ("*.embed_positions.weight", "*.embed_positions.weights") if self.positions else ()
        return Layout(fields, rules, (*drop, *needless_tables(tensors, separate)), self.positions)

    def _refuse_contradictions(self, config: Settings) -> None:
        """Old files name what the class of the model has decided since."""
        config.only("normalize_before", self.pre_norm)
        config.only("add_final_layer_norm", self.pre_norm)
        config.only("normalize_embedding", self.embedding_norm)
        config.only("static_position_embeddings", self.positions is not None)
        if self.positions and config.integer("d_model") % 2:
            config.refuse("d_model", "an even number is")

    def _position_rules(self) -> tuple[Rule, ...]:
        sides = (("encoder", "source"), ("decoder", "target"))
        if self.positions:
            return ()
        return tuple(
            Rule(
                f"{stack}.embed_positions.weight", f"{side}_embedding.position_table", rows=(_RESERVED_POSITIONS, None)
            )
            for stack, side in sides
        )


def _same_on_both_sides(config: Settings, what: str) -> int:
    encoder, decoder = config.integer(f"encoder_{what}"), config.integer(f"decoder_{what}")
    if encoder != decoder:
        config.refuse(f"decoder_{what}", f"encoder_{what}, {encoder}, is")
    return encoder


def separate_tables(config: Settings, tensors: Mapping[str, Tensor]) -> bool:
    """From version 5 on, a model whose output is not tied has tables of its own in both stacks."""
    tables = [tensors.get(f"{name}.weight") for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")]
    first, *others = [table for table in tables if table is not None] or [Tensor()]
    untied = len(others) == 2 and config.library_version >= 5 and not config.flag("tie_word_embeddings", True)
    return untied and not all(same(first, other) for other in others)


def embedding_rules(tensors: Mapping[str, Tensor], separate: bool = False) -> tuple[Rule, ...]:
    """A table that several parts share is in the file once or more, under any of their names."""
    shared = "shared.weight" in tensors and not separate
    source = Rule("shared.weight" if shared else "encoder.embed_tokens.weight", "source_embedding.tokens.weight")
    return (source, *_EMBEDDING_RULES)


def needless_tables(tensors: Mapping[str, Tensor], separate: bool = False) -> tuple[str, ...]:
    """The encoder reads the shared table, which some files write again under its name."""
    if separate:
        return ("shared.weight",)
    return ("encoder.embed_tokens.weight",) if "shared.weight" in tensors else ()


def _stack(stack: str) -> tuple[Rule, ...]:
    a, b = f"{stack}.layers.{{i}}", f"{stack}_layers.{{i}}"
    side = "source" if stack == "encoder" else "target"
    parts = {"self_attn": "self_attention", "encoder_attn": "cross_attention"}
    return (
        *(Rule(f"{a}.{theirs}.{{p}}.{{x}}", f"{b}.{ours}.{{p}}.{{x}}") for theirs, ours in parts.items()),
        *(
            Rule(f"{a}.{theirs}_layer_norm.{{x}}", f"{b}.{ours}_residual.norm.{{x}}")
            for theirs, ours in {**parts, "final": "feed_forward"}.items()
        ),
        Rule(f"{a}.fc1.{{x}}", f"{b}.feed_forward.up.{{x}}"),
        Rule(f"{a}.fc2.{{x}}", f"{b}.feed_forward.down.{{x}}"),
        Rule(f"{stack}.layernorm_embedding.{{x}}", f"{side}_embedding.norm.{{x}}"),
        Rule(f"{stack}.layer_norm.{{x}}", f"{stack}_norm.{{x}}"),
    )


def half_sine_half_cosine(positions: int, d_model: int) -> Tensor:
    """Marian's: the paper's numbers, all sines before all cosines."""
    frequency = 10000.0 ** -(torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


def tensor2tensor_positions(positions: int, d_model: int) -> Tensor:
    """M2M100's, as tensor2tensor and fairseq have it: other frequencies, and the first token is position 2."""
    half = d_model // 2
    frequency = torch.exp(torch.arange(half).float() * -(math.log(10000.0) / max(half - 1, 1)))
    angle = torch.arange(2, positions + 2).float()[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


_BART = _Form(pre_norm=False, embedding_norm=True)
_MBART = _Form(pre_norm=True, embedding_norm=True)
_M2M100 = _Form(
    pre_norm=True, embedding_norm=False, positions=tensor2tensor_positions, activation="relu", scale_embedding=True
)
_MARIAN = _Form(pre_norm=False, embedding_norm=False, positions=half_sine_half_cosine)
_PEGASUS = _Form(pre_norm=True, embedding_norm=False, positions=half_sine_half_cosine)

FAMILIES = {
    "bart": Family("BART", _BART.layout, start_id=2, unk_id=3, source_bos=True),
    "mbart": Family("mBART", _MBART.layout, start_id=None, unk_id=3),
    "m2m_100": Family("M2M100", _M2M100.layout, start_id=2, unk_id=3),
    "marian": Family("Marian", _MARIAN.layout, start_id=None, unk_id=1),
    "pegasus": Family("Pegasus", _PEGASUS.layout, start_id=0, unk_id=105),
}
