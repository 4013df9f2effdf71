"""OpenNMT-py's Transformer: a .pt of version 3 with model, generator, vocab and opt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tfexport.checkpoints.imported import Imported, ImportOptions
from tfexport.checkpoints.mapping import Mapped, Rule, map_weights
from tfexport.checkpoints.tokenizers.files import read_tokenizer
from tfexport.checkpoints.tokenizers.tokens import made_of_characters, number_list, token_list
from tfexport.checkpoints.toolkit import (
    EMBEDDINGS,
    Found,
    check_complete,
    computed_in_file,
    put_together,
    same_place,
    token_id,
    unite_equal_tables,
)
from tfexport.checkpoints.training_files import CLASSES, load_training_file
from tfexport_train.checkpoint import TextSide
from tfexport_train.errors import CheckpointError

_MARK = "decoder.transformer_layers.0.context_attn.linear_keys.weight"
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "fast_gelu": "gelu_tanh", "silu": "silu"}
_GATED = {"relu": "reglu", "gelu": "geglu", "fast_gelu": "geglu_tanh", "silu": "swiglu"}
_NEEDED = (*EMBEDDINGS.values(), "encoder_layers.0.feed_forward.up.weight", "decoder_layers.0.feed_forward.up.weight")
_REQUIRED: Mapping[str, tuple[Any, ...]] = {
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "parallel_residual": (False,),
    "shared_layer_norm": (False,),
    "num_kv": (0, None),
    "multiquery": (False,),
    "sliding_window": (0, None),
    "num_experts": (0, None),
    "copy_attn": (False,),
    "generator_function": ("softmax",),
}
"""Options with the values that ours computes; a file may leave them out."""
GENERATION: Mapping[str, Any] = {
    "length_penalty": "average",
    "length_offset": 1,  # its `avg` counts the start token
    "max_length": 250,
    "max_length_ratio": None,
}


def _rules(gated: bool) -> Iterator[Rule]:
    stacks = (("encoder", "source", "transformer"), ("decoder", "target", "transformer_layers"))
    for stack, side, layers in stacks:
        layer, ours = f"{stack}.{layers}.{{i}}", f"{stack}_layers.{{i}}"
        attentions = [("self_attn", "self_attention", "layer_norm" if stack == "encoder" else "layer_norm_1")]
        if stack == "decoder":
            attentions.append(("context_attn", "cross_attention", "layer_norm_2"))
        for theirs, part, norm in attentions:
            for name, short in (("linear_query", "q"), ("linear_keys", "k"), ("linear_values", "v")):
                yield Rule(f"{layer}.{theirs}.{name}.{{x}}", f"{ours}.{part}.{short}_proj.{{x}}")
            yield Rule(f"{layer}.{theirs}.final_linear.{{x}}", f"{ours}.{part}.out_proj.{{x}}")
            yield from _norm(f"{layer}.{norm}", f"{ours}.{part}_residual.norm")
        for name, short in (("w_1", "gate" if gated else "up"), ("w_2", "down"), ("w_3", "up")):
            yield Rule(f"{layer}.feed_forward.{name}.{{x}}", f"{ours}.feed_forward.{short}.{{x}}")
        yield from _norm(f"{layer}.feed_forward.layer_norm", f"{ours}.feed_forward_residual.norm")
        yield from _norm(f"{stack}.layer_norm", f"{stack}_norm")
        yield Rule(f"{stack}.embeddings.make_embedding.emb_luts.0.weight", EMBEDDINGS[side])
    for name in ("generator", "generator.0"):
        yield Rule(f"{name}.{{x}}", "output.{x}")


def _norm(theirs: str, ours: str) -> list[Rule]:
    """a_2 and b_2 in files of the first years."""
    return [
        Rule(f"{theirs}.a_2", f"{ours}.weight"),
        Rule(f"{theirs}.b_2", f"{ours}.bias"),
        Rule(f"{theirs}.{{x}}", f"{ours}.{{x}}"),
    ]


@dataclass(frozen=True)
class OpenNMT:
    name: str = "OpenNMT-py checkpoint"

    def recognises(self, path: Path) -> bool:
        content = load_training_file(path, CLASSES)
        return isinstance(content, dict) and _MARK in (content.get("model") or ()) and "vocab" in content

    def read(self, path: Path, options: ImportOptions) -> Imported:
        content = load_training_file(path, CLASSES)
        settings = _settings(content, path)
        tensors = _tensors(content)
        gated = "encoder.transformer.0.feed_forward.w_3.weight" in tensors
        mapped = map_weights(tensors, _rules(gated))
        check_complete(mapped, path, _NEEDED)
        facts = {**_form(settings, tensors, gated, path), **_positions(mapped, tensors, options, path)}
        unite_equal_tables(mapped)
        vocabularies = _vocabularies(content, mapped, path)
        facts |= _special_ids(mapped, vocabularies, settings, path)
        sides = [_text_side(side, vocabularies[side], options) for side in ("source", "target")]
        found = Found(tensors, mapped, facts, sides[0], sides[1], GENERATION)
        return put_together(path, self.name, found, options)


def _settings(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Raises CheckpointError for what we do not have."""
    options = content.get("opt")
    settings = dict(vars(options)) if hasattr(options, "__dict__") else dict(options or {})
    for name, allowed in _REQUIRED.items():
        if settings.get(name, allowed[0]) not in allowed:
            raise CheckpointError(f"{path}: {name} is {settings[name]!r}; tfexport computes {allowed[0]!r} only")
    if settings.get("max_relative_positions", 0):
        raise CheckpointError(
            f"{path}: max_relative_positions is {settings['max_relative_positions']}: relative or rotary positions, "
            "which tfexport does not compute"
        )
    return settings


def _tensors(content: Mapping[str, Any]) -> dict[str, Tensor]:
    """Of the model and the generator, which lies apart."""
    tensors = {name: t for name, t in content["model"].items() if isinstance(t, Tensor)}
    generator = content.get("generator") or {}
    return tensors | {f"generator.{name}": t for name, t in generator.items() if isinstance(t, Tensor)}


def _form(settings: Mapping[str, Any], tensors: Mapping[str, Tensor], gated: bool, path: Path) -> dict[str, Any]:
    activation = settings.get("pos_ffn_activation_fn", "relu")
    known = _GATED if gated else _ACTIVATIONS
    if activation not in known:
        raise CheckpointError(f"{path}: pos_ffn_activation_fn {activation} is not one of {', '.join(known)}")
    rms = settings.get("layer_norm", "standard") == "rms"
    return {
        "num_heads": settings.get("heads", 8),
        "norm_position": "pre",
        "activation": known[activation],
        "norm": "rms_norm" if rms else "layer_norm",
        "norm_eps": float(settings.get("norm_eps", 1e-6)),
    }


def _positions(mapped: Mapped, tensors: Mapping[str, Tensor], options: ImportOptions, path: Path) -> dict[str, Any]:
    names = {
        side: f"{stack}.embeddings.make_embedding.pe.pe"
        for stack, side in (("encoder", "source"), ("decoder", "target"))
    }
    if any(name not in tensors for name in names.values()):
        raise CheckpointError(f"{path}: holds no table of positions (position_encoding is off); it cannot be imported")
    # Embeddings are scaled where a table of positions is added.
    return {**computed_in_file(mapped, tensors, names, options), "scale_embedding": True}


def _vocabularies(content: Mapping[str, Any], mapped: Mapped, path: Path) -> dict[str, list[str]]:
    """Raises CheckpointError for files of version 2 and older, whose vocabularies are objects of torchtext."""
    vocab = content["vocab"]
    found = {}
    for side, name in (("source", "src"), ("target", "tgt")):
        tokens = vocab.get(name) if isinstance(vocab, Mapping) else None
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise CheckpointError(
                f"{path}: its {side} vocabulary is not a list of tokens: written by OpenNMT-py 2 or older; rewrite it "
                "with that version's tools/convert_torchtext.py or OpenNMT-py 3's tools/convertv2_v3.py"
            )
        rows = len(mapped.weights[EMBEDDINGS[side]])
        if len(tokens) > rows:
            raise CheckpointError(f"{path}: {len(tokens)} {side} tokens for an embedding of {rows} rows")
        found[side] = [*tokens, *(f"<extra {i}>" for i in range(len(tokens), rows))]
    return found


def _special_ids(
    mapped: Mapped, vocabularies: dict[str, list[str]], settings: Mapping[str, Any], path: Path
) -> dict[str, int]:
    target = vocabularies["target"]
    start = settings.get("decoder_start_token") or "<s>"
    names = {"pad_id": ("<blank>", "<pad>"), "start_id": (start,), "eos_id": ("</s>",), "unk_id": ("<unk>",)}
    chosen = {name: next((t for t in choice if t in target), None) for name, choice in names.items()}
    missing = [names[name][0] for name, token in chosen.items() if token is None]
    if missing:
        raise CheckpointError(f"{path}: its target vocabulary lacks {', '.join(missing)}")
    same_place(mapped, vocabularies, [str(token) for token in dict.fromkeys(chosen.values())])
    return {name: vocabularies["target"].index(str(token)) for name, token in chosen.items()}


def _text_side(side: str, tokens: list[str], options: ImportOptions) -> TextSide:
    """A tokenizer that was given, in the ids of the model; else text is tokens with spaces between them."""
    given = options.target_tokenizer if side == "target" and options.target_tokenizer else options.source_tokenizer
    if options.ids:
        made = number_list(len(tokens))
    elif given is not None:
        made = read_tokenizer(given, tokens, len(tokens))
    else:
        made = token_list(tokens, "characters" if made_of_characters(tokens) else "words")
    language = options.source_language if side == "source" else options.target_language
    before = () if language is None else (token_id(tokens, language, f"--{side}-language"),)
    ends = bool(options.config.get("source_add_eos", False)) if side == "source" else True
    return replace(made, add_eos=ends, prefix_ids=before)


FORMAT = OpenNMT()
