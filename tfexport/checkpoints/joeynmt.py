"""JoeyNMT's Transformer: a folder with a .ckpt, config.yaml and the vocabularies, or the .ckpt in such a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tfexport.checkpoints.imported import Imported, ImportOptions
from tfexport.checkpoints.mapping import Mapped, Rule, map_weights
from tfexport.checkpoints.tokenizers.files import read_tokenizer
from tfexport.checkpoints.tokenizers.tokens import number_list, read_text, read_tokens, token_list
from tfexport.checkpoints.toolkit import (
    EMBEDDINGS,
    Found,
    check_complete,
    check_sizes,
    computed_in_file,
    put_together,
    same_place,
    unite_equal_tables,
    wanted_positions,
)
from tfexport.checkpoints.training_files import CLASSES, load_training_file
from tfexport_train.checkpoint import TextSide
from tfexport_train.errors import CheckpointError

_MARK = "encoder.layers.0.src_src_att.k_layer.weight"
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu"}
_SPECIAL = {"pad_id": "<pad>", "start_id": "<s>", "eos_id": "</s>", "unk_id": "<unk>"}
_NEEDED = (*EMBEDDINGS.values(), "encoder_layers.0.feed_forward.up.weight", "decoder_layers.0.feed_forward.up.weight")
_SHORT = {"source": ("src",), "target": ("trg", "tgt")}


def _rules() -> Iterator[Rule]:
    for stack in ("encoder", "decoder"):
        layer, ours = f"{stack}.layers.{{i}}", f"{stack}_layers.{{i}}"
        attentions = [("src_src_att", "self_attention", "layer_norm")]
        if stack == "decoder":
            attentions = [
                ("trg_trg_att", "self_attention", "x_layer_norm"),
                ("src_trg_att", "cross_attention", "dec_layer_norm"),
            ]
        for theirs, part, norm in attentions:
            for name, short in (("q_layer", "q"), ("k_layer", "k"), ("v_layer", "v"), ("output_layer", "out")):
                yield Rule(f"{layer}.{theirs}.{name}.{{x}}", f"{ours}.{part}.{short}_proj.{{x}}")
            yield Rule(f"{layer}.{norm}.{{x}}", f"{ours}.{part}_residual.norm.{{x}}")
        yield Rule(f"{layer}.feed_forward.pwff_layer.0.{{x}}", f"{ours}.feed_forward.up.{{x}}")
        yield Rule(f"{layer}.feed_forward.pwff_layer.3.{{x}}", f"{ours}.feed_forward.down.{{x}}")
        yield Rule(f"{layer}.feed_forward.layer_norm.{{x}}", f"{ours}.feed_forward_residual.norm.{{x}}")
        yield Rule(f"{stack}.layer_norm.{{x}}", f"{stack}_norm.{{x}}")
    yield Rule("src_embed.lut.weight", EMBEDDINGS["source"])
    yield Rule("trg_embed.lut.weight", EMBEDDINGS["target"])
    yield Rule("decoder.output_layer.{x}", "output.{x}")


@dataclass(frozen=True)
class JoeyNMT:
    name: str = "JoeyNMT model"

    def recognises(self, path: Path) -> bool:
        file = _checkpoint_file(path)
        content = load_training_file(file, CLASSES) if file is not None else None
        return isinstance(content, dict) and _MARK in (content.get("model_state") or ())

    def read(self, path: Path, options: ImportOptions) -> Imported:
        file = _checkpoint_file(path)
        content = load_training_file(file, CLASSES) if file is not None else None
        if file is None or not isinstance(content, dict):
            raise CheckpointError(f"{path}: holds no checkpoint of JoeyNMT")
        config = _read_config(file.parent / "config.yaml")
        tensors = {name: t for name, t in content["model_state"].items() if isinstance(t, Tensor)}
        mapped = map_weights(tensors, _rules())
        check_complete(mapped, path, _NEEDED)
        facts = {**_form(config, path), **_positions(mapped, tensors, options)}
        unite_equal_tables(mapped)
        vocabularies = _vocabularies(file.parent, config)
        check_sizes(mapped, vocabularies, path)
        special = {name: _special_token(config, name) for name in _SPECIAL}
        missing = [token for token in special.values() if token not in vocabularies["target"]]
        if missing:
            raise CheckpointError(f"{path}: its target vocabulary lacks {', '.join(missing)}")
        same_place(mapped, vocabularies, list(special.values()))
        facts |= {name: vocabularies["target"].index(token) for name, token in special.items()}
        sides = [_text_side(file.parent, side, vocabularies[side], config, options) for side in ("source", "target")]
        found = Found(tensors, mapped, facts, sides[0], sides[1], _generation(config))
        return put_together(path, self.name, found, options)


def _checkpoint_file(path: Path) -> Path | None:
    """best.ckpt, or the newest of a folder with a config.yaml."""
    if path.is_file():
        return path if path.suffix == ".ckpt" else None
    if not (path / "config.yaml").is_file():
        return None
    files = [path / "best.ckpt", *sorted(path.glob("*.ckpt"), key=lambda file: -file.stat().st_mtime)]
    return next((file for file in files if file.is_file()), None)


def _read_config(path: Path) -> dict[str, Any]:
    """Raises CheckpointError."""
    import yaml

    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; JoeyNMT writes it beside every checkpoint")
    try:
        config = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise CheckpointError(f"{path}: not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
        raise CheckpointError(f"{path}: describes no model")
    return config


def _form(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Of both stacks, which must be alike. Raises CheckpointError."""
    forms = []
    for name in ("encoder", "decoder"):
        stack = config["model"].get(name) or {}
        if stack.get("type", "recurrent") != "transformer":
            raise CheckpointError(f"{path}: its {name} is of type {stack.get('type', 'recurrent')}, not a Transformer")
        activation = stack.get("activation", "relu")
        if activation not in _ACTIVATIONS:
            raise CheckpointError(f"{path}: activation {activation} is not one of {', '.join(_ACTIVATIONS)}")
        if float(stack.get("alpha", 1.0)) != 1.0:
            raise CheckpointError(
                f"{path}: alpha {stack['alpha']} weighs residual connections, which tfexport does not"
            )
        forms.append(
            {
                "num_heads": stack.get("num_heads", 8),
                "norm_position": stack.get("layer_norm", "pre"),
                "activation": _ACTIVATIONS[activation],
                "scale_embedding": bool((stack.get("embeddings") or {}).get("scale", False)),
            }
        )
    if forms[0] != forms[1]:
        unlike = [name for name in forms[0] if forms[0][name] != forms[1][name]]
        raise CheckpointError(f"{path}: encoder and decoder differ in {', '.join(unlike)}; tfexport has one for both")
    return {**forms[0], "norm": "layer_norm", "norm_eps": 1e-6}


def _positions(mapped: Mapped, tensors: Mapping[str, Tensor], options: ImportOptions) -> dict[str, Any]:
    names = {"source": "encoder.pe.pe", "target": "decoder.pe.pe"}
    if any(name not in tensors for name in names.values()):
        return {"positions": "sinusoidal", "max_positions": wanted_positions(options)}
    return computed_in_file(mapped, tensors, names, options)


def _side_config(config: Mapping[str, Any], side: str) -> Mapping[str, Any]:
    """`data.src` of version 2; version 1 has the names `src_vocab` and `level` in `data` itself."""
    data = config.get("data") or {}
    found = next((data[name] for name in _SHORT[side] if isinstance(data.get(name), dict)), None)
    return found if found is not None else {"level": data.get("level", "word")}


def _vocabularies(folder: Path, config: Mapping[str, Any]) -> dict[str, list[str]]:
    """src_vocab.txt and trg_vocab.txt of the model's folder, or the files of that name that the configuration has."""
    found = {}
    for side, short in _SHORT.items():
        named = Path(str(_side_config(config, side).get("voc_file") or "")).name
        names = [f"{each}_vocab.txt" for each in short] + [named] * bool(named)
        file = next((folder / name for name in names if (folder / name).is_file()), None)
        if file is None:
            raise CheckpointError(f"{folder}: no {side} vocabulary; expected one of {', '.join(names)}")
        found[side] = read_tokens(file)
    return found


def _special_token(config: Mapping[str, Any], name: str) -> str:
    """Version 2 lets the configuration name them."""
    key = {"pad_id": "pad_token", "start_id": "bos_token", "eos_id": "eos_token", "unk_id": "unk_token"}[name]
    special = (config.get("data") or {}).get("special_symbols") or {}
    return str(special.get(key, _SPECIAL[name]))


def _text_side(
    folder: Path, side: str, tokens: list[str], config: Mapping[str, Any], options: ImportOptions
) -> TextSide:
    """SentencePiece where it was given or lies in the folder; else words or characters, by the level."""
    about = _side_config(config, side)
    named = Path(str((about.get("tokenizer_cfg") or {}).get("model_file") or "")).name
    given = options.target_tokenizer if side == "target" and options.target_tokenizer else options.source_tokenizer
    if given is None and named and (folder / named).is_file():
        given = folder / named
    if options.ids:
        made = number_list(len(tokens))
    elif given is not None:
        made = read_tokenizer(given, tokens, len(tokens), _special_token(config, "unk_id"))
    else:
        made = token_list(tokens, "characters" if about.get("level") == "char" else "words")
    return replace(made, add_eos=True)


def _generation(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of the `testing` part, as far as ours has the same."""
    testing = config.get("testing") or {}
    found: dict[str, Any] = {"early_stopping": True}
    if isinstance(testing.get("beam_size"), int) and testing["beam_size"] > 0:
        found["beam_size"] = testing["beam_size"]
    alpha = testing.get("beam_alpha", testing.get("alpha"))
    if isinstance(alpha, (int, float)) and alpha >= 0:
        found |= {"length_penalty": "gnmt", "alpha": float(alpha)}
    return found


FORMAT = JoeyNMT()
