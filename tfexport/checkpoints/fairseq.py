"""fairseq's Transformer: a checkpoint*.pt with dict.xx.txt beside it.

Settings are an argparse.Namespace under `args` (to 0.10) or a dict under `cfg` (later); weights lie under `model`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tfexport.checkpoints.imported import Imported, ImportOptions
from tfexport.checkpoints.mapping import Mapped, Rule, map_weights
from tfexport.checkpoints.tokenizers.files import read_tokenizer
from tfexport.checkpoints.tokenizers.tokens import number_list, read_fairseq_dict, read_text, token_list
from tfexport.checkpoints.toolkit import (
    EMBEDDINGS,
    TABLES,
    Found,
    check_complete,
    check_sizes,
    put_together,
    sines_then_cosines,
    token_id,
    unite_equal_tables,
    wanted_positions,
)
from tfexport.checkpoints.training_files import CLASSES, load_training_file
from tfexport_train.checkpoint import TextSide
from tfexport_train.errors import CheckpointError

_MARK = "decoder.layers.0.encoder_attn.k_proj.weight"
_MARKS = (_MARK, "decoder.layers.0.encoder_attn.in_proj_weight")
_PAD = 1  # of fairseq's Dictionary; its own positions begin behind it
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",  # fairseq calls the approximation so
    "gelu_fast": "gelu_tanh",
    "swish": "silu",
}
_REFUSED = {
    "adaptive_softmax_cutoff": "an adaptive softmax",
    "character_embeddings": "embeddings of characters",
    "adaptive_input": "adaptive input",
}
GENERATION: Mapping[str, Any] = {
    "length_penalty": "average",
    "early_stopping": True,
    "min_length": 1,
    "max_length": 200,
    "max_length_ratio": None,
}
"""fairseq-generate's defaults: its beam search ends with as many finished hypotheses as beams."""


def _attention(theirs: str, ours: str) -> Iterator[Rule]:
    for part in ("q", "k", "v", "out"):
        yield Rule(f"{theirs}.{part}_proj.{{x}}", f"{ours}.{part}_proj.{{x}}")
    for part in ("weight", "bias"):  # of 2018
        yield Rule(f"{theirs}.in_proj_{part}", tuple(f"{ours}.{p}_proj.{part}" for p in "qkv"))


def _rules() -> Iterator[Rule]:
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        layer, ours = f"{stack}.layers.{{i}}", f"{stack}_layers.{{i}}"
        norms = [("self_attn_layer_norm", "self_attention"), ("final_layer_norm", "feed_forward")]
        yield from _attention(f"{layer}.self_attn", f"{ours}.self_attention")
        if stack == "decoder":
            yield from _attention(f"{layer}.encoder_attn", f"{ours}.cross_attention")
            norms.insert(1, ("encoder_attn_layer_norm", "cross_attention"))
        for n, (name, part) in enumerate(norms):
            for theirs in (name, f"layer_norms.{n}"):  # the second of 2018
                yield Rule(f"{layer}.{theirs}.{{x}}", f"{ours}.{part}_residual.norm.{{x}}")
        yield Rule(f"{layer}.fc1.{{x}}", f"{ours}.feed_forward.up.{{x}}")
        yield Rule(f"{layer}.fc2.{{x}}", f"{ours}.feed_forward.down.{{x}}")
        yield Rule(f"{stack}.layer_norm.{{x}}", f"{stack}_norm.{{x}}")
        for name in ("layernorm_embedding", "emb_layer_norm"):
            yield Rule(f"{stack}.{name}.{{x}}", f"{side}_embedding.norm.{{x}}")
        yield Rule(f"{stack}.embed_tokens.weight", EMBEDDINGS[side])
        yield Rule(f"{stack}.embed_positions.weight", TABLES[side], rows=(_PAD + 1, None))
    yield Rule("decoder.output_projection.{x}", "output.{x}")
    yield Rule("decoder.embed_out", "output.weight")


_COPIES = tuple(f"{kind}_{part}" for kind in ("in_proj", "out_proj", "fc1", "fc2") for part in ("weight", "bias"))
"""What fairseq 0.12 keeps in every encoder layer for a fast path: copies, or zeros where nothing was loaded."""

_DROPPED = (
    "*.version",
    "*.embed_positions._float_tensor",
    *(f"encoder.layers.{{i}}.{name}" for name in _COPIES),
)
_NEEDED = (EMBEDDINGS["source"], "encoder_layers.0.feed_forward.up.weight", "decoder_layers.0.feed_forward.up.weight")


@dataclass(frozen=True)
class Fairseq:
    name: str = "fairseq checkpoint"

    def recognises(self, path: Path) -> bool:
        content = load_training_file(path, CLASSES)
        if not isinstance(content, dict) or not isinstance(content.get("model"), Mapping):
            return False
        return ("args" in content or "cfg" in content) and any(name in content["model"] for name in _MARKS)

    def read(self, path: Path, options: ImportOptions) -> Imported:
        content = load_training_file(path, CLASSES)
        settings = _Settings.of(content, path)
        tensors = {name: t for name, t in content["model"].items() if isinstance(t, Tensor)}
        mapped = map_weights(tensors, _rules(), _DROPPED)
        check_complete(mapped, path, _NEEDED)
        unite_equal_tables(mapped)
        facts = _form(settings, tensors, path)
        _add_positions(mapped, settings, tensors, options)
        vocabularies = _vocabularies(path, settings, mapped, options)
        source, target = (_text_side(side, vocabularies[side], options) for side in ("source", "target"))
        special = {n: vocabularies["target"].index(t) for n, t in _SPECIAL.items()}
        found = Found(tensors, mapped, {**facts, **special}, source, target, GENERATION)
        return put_together(path, self.name, found, options)


_SPECIAL = {"pad_id": "<pad>", "start_id": "</s>", "eos_id": "</s>", "unk_id": "<unk>"}


@dataclass(frozen=True)
class _Settings:
    """Options of fairseq-train by their names, whether they lie flat or by stack."""

    values: Mapping[str, Any]
    task: Mapping[str, Any]

    @classmethod
    def of(cls, content: Mapping[str, Any], path: Path) -> _Settings:
        """Raises CheckpointError where there are none."""
        args, cfg = content.get("args"), content.get("cfg")
        if args is not None:
            return cls(_plain(args), _plain(args))
        if not isinstance(cfg, Mapping) or cfg.get("model") is None:
            raise CheckpointError(f"{path}: holds no settings of its model (args or cfg); its form cannot be told")
        return cls(_plain(cfg["model"]), _plain(cfg.get("task") or {}))

    def get(self, name: str, default: Any = None) -> Any:
        """`encoder_layers` may also be `layers` below `encoder`."""
        if name in self.values:
            return self.values[name]
        stack, _, rest = name.partition("_")
        below = self.values.get(stack)
        return _plain(below).get(rest, default) if below is not None else default


def _plain(values: Any) -> dict[str, Any]:
    if isinstance(values, argparse.Namespace):
        return vars(values)
    return dict(values) if isinstance(values, Mapping) else {}


def _form(settings: _Settings, tensors: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """Raises CheckpointError for what we do not have."""
    for name, meaning in _REFUSED.items():
        if settings.get(name):
            raise CheckpointError(f"{path}: has {meaning} ({name}), which tfexport does not compute")
    for name in ("normalize_before", "attention_heads"):
        encoder, decoder = settings.get(f"encoder_{name}"), settings.get(f"decoder_{name}")
        if encoder != decoder:
            raise CheckpointError(
                f"{path}: encoder_{name} is {encoder}, decoder_{name} is {decoder}; tfexport has one for both"
            )
    heads = settings.get("encoder_attention_heads")
    if type(heads) is not int:
        raise CheckpointError(f"{path}: its settings do not tell encoder_attention_heads; not a Transformer of fairseq")
    activation = settings.get("activation_fn") or "relu"
    if activation not in _ACTIVATIONS:
        raise CheckpointError(f"{path}: activation {activation} is not one of {', '.join(_ACTIVATIONS)}")
    pre = bool(settings.get("encoder_normalize_before"))
    if pre and ("encoder.layer_norm.weight" in tensors) != ("decoder.layer_norm.weight" in tensors):
        raise CheckpointError(f"{path}: only one of the two stacks has a norm at its end; tfexport has both or none")
    return {
        "num_heads": heads,
        "norm_position": "pre" if pre else "post",
        "activation": _ACTIVATIONS[activation],
        "scale_embedding": not settings.get("no_scale_embedding", False),
        "embedding_norm": any("layernorm_embedding" in name or "emb_layer_norm" in name for name in tensors),
        "positions": "none",
        "norm": "layer_norm",
        "norm_eps": 1e-5,
    }


def _add_positions(mapped: Mapped, settings: _Settings, tensors: Mapping[str, Tensor], options: ImportOptions) -> None:
    """A side without a learned table has sines, unless it has no positions at all."""
    if settings.get("no_token_positional_embeddings", False):
        return
    width = mapped.weights[EMBEDDINGS["source"]].shape[1]
    table = sines_then_cosines(_PAD + 1, wanted_positions(options), width)
    for name in TABLES.values():
        mapped.weights.setdefault(name, table)


def _vocabularies(path: Path, settings: _Settings, mapped: Mapped, options: ImportOptions) -> dict[str, list[str]]:
    """dict.xx.txt beside the checkpoint, or as given. Raises CheckpointError."""
    rows = {side: len(mapped.weights[EMBEDDINGS[side]]) for side in EMBEDDINGS if EMBEDDINGS[side] in mapped.weights}
    rows.setdefault("target", rows["source"])
    found = {}
    for side in ("source", "target"):
        file = _dictionary(path, side, settings, options)
        tokens = read_fairseq_dict(file)
        if not len(tokens) <= rows[side] < len(tokens) + 8 + 128:
            raise CheckpointError(f"{file}: makes {len(tokens)} tokens, the {side} embedding has {rows[side]} rows")
        # Tasks of many languages put their codes behind the dictionary.
        found[side] = [*tokens, *(f"<extra {i}>" for i in range(len(tokens), rows[side]))]
    check_sizes(mapped, {side: found[side] for side in found if EMBEDDINGS[side] in mapped.weights}, path)
    return found


def _dictionary(path: Path, side: str, settings: _Settings, options: ImportOptions) -> Path:
    given = (options.source_tokenizer, options.target_tokenizer or options.source_tokenizer)[side == "target"]
    if given is not None and given.name.startswith("dict"):
        return given
    language = settings.task.get(f"{side}_lang") or settings.values.get(f"{side}_lang")
    beside = sorted(path.parent.glob("dict*.txt"))
    named = [file for file in beside if file.name in (f"dict.{language}.txt", "dict.txt")]
    if not named and language is None and len({read_text(file) for file in beside}) == 1:
        return beside[0]  # one for both languages
    if not named:
        wanted = "its settings do not name its languages" if language is None else f"put dict.{language}.txt beside it"
        there = f"; there are {', '.join(file.name for file in beside)}" if beside else ""
        raise CheckpointError(
            f"{path}: needs the {side} dictionary of its data: {wanted}, or give it with --{side}-tokenizer{there}"
        )
    return named[0]


def _text_side(side: str, tokens: list[str], options: ImportOptions) -> TextSide:
    """SentencePiece in the ids of the dictionary, or words as they are in it."""
    given = (options.source_tokenizer, options.target_tokenizer or options.source_tokenizer)[side == "target"]
    if options.ids:
        made = number_list(len(tokens))
    elif given is not None and given.suffix in (".model", ".spm"):
        made = read_tokenizer(given, tokens, len(tokens))
    else:
        made = token_list(tokens)
    language = options.source_language if side == "source" else options.target_language
    before = () if language is None else (token_id(tokens, language, f"--{side}-language"),)
    return replace(made, prefix_ids=before)


FORMAT = Fairseq()
