"""Shape and form of an encoder-decoder Transformer. Imports nothing heavy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args, get_type_hints

from tfexport_train.errors import ConfigError

Norm = Literal["layer_norm", "rms_norm", "unbiased_layer_norm"]
NormPosition = Literal["pre", "post"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh", "reglu"]
Positions = Literal["sinusoidal", "learned", "none"]


@dataclass(frozen=True)
class EncoderDecoderConfig:
    """Everything that decides which function the weights compute. The defaults are the modern pre-norm form."""

    source_vocab_size: int
    target_vocab_size: int

    # Special ids. They are the tokenizers' own; `start_id` is what the decoder reads first, which some models make
    # the same as `pad_id` or `eos_id`.
    pad_id: int = 0
    start_id: int = 1
    eos_id: int = 2
    unk_id: int = 3

    d_model: int = 512
    num_heads: int = 8
    head_dim: int | None = None  # None: d_model / num_heads
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    d_ff: int = 2048
    max_positions: int = 512  # longest source and longest target, in tokens

    positions: Positions = "sinusoidal"  # what is added to the token embeddings
    relative_buckets: int = 0  # T5's bias on self-attention scores: a number for each head and bucket of distances
    relative_max_distance: int = 128  # from here on all distances share a bucket
    scale_embedding: bool = True  # token embeddings times sqrt(d_model)
    embedding_norm: bool = False  # one more norm on embedding + position
    norm: Norm = "layer_norm"
    norm_eps: float = 1e-5
    norm_position: NormPosition = "pre"
    final_norm: bool = True  # one more norm after each stack (what the pre-norm form needs)
    activation: Activation = "relu"
    attention_bias: bool = True
    feed_forward_bias: bool = True
    output_bias: bool = False

    share_embeddings: bool = False  # one table for source and target (needs one shared vocabulary)
    tie_output: bool = True  # the target table is also the output projection

    # Training only; the exported graphs hold none of it.
    dropout: float = 0.1  # on each sub-layer's output and on embedding + position
    attention_dropout: float = 0.0  # on the attention weights
    activation_dropout: float = 0.0  # between the two feed-forward products

    def __post_init__(self) -> None:
        problems = list(_type_problems(self)) or list(_value_problems(self))
        if problems:
            raise ConfigError("model configuration: " + "; ".join(problems))

    @property
    def head_size(self) -> int:
        """Features of one attention head (D)."""
        return self.head_dim if self.head_dim is not None else self.d_model // self.num_heads

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EncoderDecoderConfig:
        """Raises ConfigError, naming every unknown or missing key at once."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        missing = sorted({"source_vocab_size", "target_vocab_size"} - set(values))
        if unknown or missing:
            parts = [f"unknown key{'s'[: len(unknown) > 1]} {', '.join(unknown)}"] if unknown else []
            parts += [f"missing {', '.join(missing)}"] if missing else []
            raise ConfigError("model configuration: " + "; ".join(parts))
        return cls(**values)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> EncoderDecoderConfig:
        return cls.from_dict(_mapping(json.loads(text)))

    def to_yaml(self) -> str:
        import yaml

        return str(yaml.safe_dump(self.to_dict(), sort_keys=False))

    @classmethod
    def from_yaml(cls, text: str) -> EncoderDecoderConfig:
        import yaml

        return cls.from_dict(_mapping(yaml.safe_load(text)))

    @classmethod
    def preset(
        cls, name: str, source_vocab_size: int, target_vocab_size: int, changes: Mapping[str, Any] | None = None
    ) -> EncoderDecoderConfig:
        """A named published form (a key of PRESETS), with `changes` laid over it."""
        if name not in PRESETS:
            raise ConfigError(f"unknown preset {name!r}; choose one of {', '.join(PRESETS)}")
        sizes = {"source_vocab_size": source_vocab_size, "target_vocab_size": target_vocab_size}
        return cls.from_dict({**sizes, **PRESETS[name], **(changes or {})})

    def with_changes(self, changes: Mapping[str, Any]) -> EncoderDecoderConfig:
        return replace(self, **changes)


_PAPER = {
    "norm_position": "post",
    "final_norm": False,
    "share_embeddings": True,
    "tie_output": True,
}
_ANNOTATED = {
    "norm": "unbiased_layer_norm",
    "norm_eps": 1e-6,
    "max_positions": 5000,
    "tie_output": False,
    "output_bias": True,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
}

PRESETS: dict[str, dict[str, Any]] = {
    # Vaswani et al. 2017, "Attention Is All You Need", table 3
    "paper-base": _PAPER,
    "paper-big": {**_PAPER, "d_model": 1024, "num_heads": 16, "d_ff": 4096, "dropout": 0.3},
    # Rush et al., "The Annotated Transformer", 2022 version
    "annotated": _ANNOTATED,
    # pre-norm, target table tied to the projection
    "modern-base": {"activation_dropout": 0.1},
    "modern-small": {
        "d_model": 256,
        "num_heads": 4,
        "num_encoder_layers": 3,
        "num_decoder_layers": 3,
        "d_ff": 1024,
    },
    # RMSNorm and gated SiLU without biases
    "modern-swiglu": {
        "norm": "rms_norm",
        "activation": "swiglu",
        "attention_bias": False,
        "feed_forward_bias": False,
        "d_ff": 1408,
    },
}


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"model configuration: expected keys and values, found {type(value).__name__}")
    return value


def _type_problems(config: EncoderDecoderConfig) -> list[str]:
    problems = []
    hints = get_type_hints(EncoderDecoderConfig)
    for field in fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        choices = get_args(hint)
        if choices and all(isinstance(c, str) for c in choices):
            if value not in choices:
                problems.append(f"{field.name} must be one of {', '.join(choices)}, not {value!r}")
        elif hint is float:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                problems.append(f"{field.name} must be a number, not {value!r}")
        elif hint is bool or hint is int:
            if type(value) is not hint:
                problems.append(f"{field.name} must be {hint.__name__}, not {value!r}")
        elif value is not None and type(value) is not int:
            problems.append(f"{field.name} must be int or null, not {value!r}")
    return problems


def _value_problems(c: EncoderDecoderConfig) -> list[str]:
    problems = []
    for name in ("d_model", "num_heads", "num_encoder_layers", "num_decoder_layers", "d_ff", "max_positions"):
        if getattr(c, name) < 1:
            problems.append(f"{name} must be at least 1, not {getattr(c, name)}")
    if c.head_dim is None and c.num_heads >= 1 and c.d_model % c.num_heads:
        problems.append(f"d_model {c.d_model} is not divisible by num_heads {c.num_heads}; give head_dim")
    if c.head_dim is not None and c.head_dim < 1:
        problems.append(f"head_dim must be at least 1, not {c.head_dim}")
    if c.positions == "sinusoidal" and c.d_model % 2:
        problems.append(f"sinusoidal positions need an even d_model, not {c.d_model}")
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        if not 0 <= getattr(c, name) < 1:
            problems.append(f"{name} must be in [0, 1), not {getattr(c, name)}")
    if not c.norm_eps > 0:
        problems.append(f"norm_eps must be positive, not {c.norm_eps}")
    if c.norm == "unbiased_layer_norm" and c.d_model < 2:
        problems.append("unbiased_layer_norm divides by d_model - 1 and needs d_model of at least 2")
    smallest = min(c.source_vocab_size, c.target_vocab_size)
    for name in ("pad_id", "start_id", "eos_id", "unk_id"):
        if not 0 <= getattr(c, name) < smallest:
            problems.append(f"{name} {getattr(c, name)} is outside a vocabulary of {smallest}")
    if c.eos_id == c.pad_id:
        problems.append("eos_id must differ from pad_id")
    problems += _relative_problems(c.relative_buckets, c.relative_max_distance)
    if c.share_embeddings and c.source_vocab_size != c.target_vocab_size:
        problems.append(
            f"share_embeddings needs equal vocabularies, not {c.source_vocab_size} and {c.target_vocab_size}"
        )
    return problems


def _relative_problems(buckets: int, max_distance: int) -> list[str]:
    """The encoder halves the buckets, for either direction, and halves them again, for distances of one and of many."""
    if buckets and (buckets < 4 or buckets % 2):
        return [f"relative_buckets must be 0 or an even number of at least 4, not {buckets}"]
    if buckets and max_distance <= buckets // 2:
        return [f"relative_max_distance must be above half of relative_buckets {buckets}, not {max_distance}"]
    return []
