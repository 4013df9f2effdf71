"""Marian's own model: a .npz with its settings inside (special:model.yml), vocabularies beside it.

Marian keeps matrices as [in, out]. It begins with a zero vector in the place of a start token, scales embeddings by the
root of their size and adds sines and cosines (marian-dev, src/models/transformer.h).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tfexport.checkpoints.imported import Imported, ImportOptions
from tfexport.checkpoints.mapping import Mapped, Rule, map_weights
from tfexport.checkpoints.tokenizers.files import read_tokenizer
from tfexport.checkpoints.tokenizers.sentencepiece_model import piece_names
from tfexport.checkpoints.tokenizers.tokens import number_list, read_text, token_list
from tfexport.checkpoints.toolkit import (
    EMBEDDINGS,
    ZERO_TOKEN,
    Found,
    check_complete,
    computed_positions,
    gelu_by_silu,
    put_together,
    same_place,
    sines_then_cosines,
    token_id,
    unite_equal_tables,
    wanted_positions,
    with_zero_rows,
)
from tfexport_train.checkpoint import TextSide
from tfexport_train.errors import CheckpointError
from tfexport_train.mapped_memory import in_file

SETTINGS = "special:model.yml"
_LARGEST = 2**36  # bytes of all arrays together
_GELU_VERSION = (1, 12, 0)  # up to here Marian's gelu is x sigmoid(1.702 x)
_EOS, _UNK = "</s>", "<unk>"
_ATTENTIONS = {"self": "self_attention", "context": "cross_attention"}
_REQUIRED: Mapping[str, tuple[Any, ...]] = {
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-depth": (2,),
    "transformer-no-projection": (False,),
    "transformer-no-bias": (False,),
    "transformer-rms-norm": (False,),
    "transformer-rnn-projection": (False,),
    "transformer-pool": (False,),
    "transformer-attention-mask": ("default",),
    "transformer-disable-position-embeddings": (False,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-tied-layers": ([],),
    "factors-combine": ("sum",),
    "ulr": (False,),
}
"""Settings with the values that ours computes; other values are refused. A file may leave them out."""
_NEEDED = (EMBEDDINGS["target"], "encoder_layers.0.feed_forward.up.weight", "decoder_layers.0.feed_forward.up.weight")


def _rules() -> Iterator[Rule]:
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        layer, ours = f"{stack}_l{{i}}", f"{stack}_layers.{{i-1}}"
        for short, part in _ATTENTIONS.items():
            for letter, name in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "out")):
                yield Rule(f"{layer}_{short}_W{letter}", f"{ours}.{part}.{name}_proj.weight", transpose=True)
                yield Rule(f"{layer}_{short}_b{letter}", f"{ours}.{part}.{name}_proj.bias", change=_flat)
            yield from _norm(f"{layer}_{short}_Wo", f"{ours}.{part}_residual.norm")
        for number, name in (("1", "up"), ("2", "down")):
            yield Rule(f"{layer}_ffn_W{number}", f"{ours}.feed_forward.{name}.weight", transpose=True)
            yield Rule(f"{layer}_ffn_b{number}", f"{ours}.feed_forward.{name}.bias", change=_flat)
        yield from _norm(f"{layer}_ffn_ffn", f"{ours}.feed_forward_residual.norm")
        yield from _norm(f"{stack}_emb", f"{side}_embedding.norm", "_pre")
        yield Rule(f"{stack}_Wemb", EMBEDDINGS[side])
    yield Rule("Wemb", EMBEDDINGS["source"])
    yield Rule("decoder_ff_logit_out_W", "output.weight", transpose=True)
    yield Rule("decoder_ff_logit_out_Wt", "output.weight")
    yield Rule("decoder_ff_logit_out_b", "output.bias", change=_flat)


def _norm(theirs: str, ours: str, suffix: str = "") -> list[Rule]:
    return [
        Rule(f"{theirs}_ln_scale{suffix}", f"{ours}.weight", change=_flat),
        Rule(f"{theirs}_ln_bias{suffix}", f"{ours}.bias", change=_flat),
    ]


def _flat(row: Tensor) -> Tensor:
    """[1, n] or [n] as [n]."""
    return row.reshape(-1)


@dataclass(frozen=True)
class Marian:
    name: str = "Marian model (npz)"

    def recognises(self, path: Path) -> bool:
        if path.suffix != ".npz" or not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as file:
            return f"{SETTINGS}.npy" in file.namelist()

    def read(self, path: Path, options: ImportOptions) -> Imported:
        arrays = _read_arrays(path)
        settings = _settings(arrays, path)
        _check_supported(settings, path)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if array.dtype.kind == "f"}
        mapped = map_weights(tensors, _rules(), ["decoder_c*_", "Wpos"])
        if EMBEDDINGS["target"] not in mapped.weights and EMBEDDINGS["source"] in mapped.weights:
            mapped.weights[EMBEDDINGS["target"]] = mapped.weights[EMBEDDINGS["source"]]
        check_complete(mapped, path, _NEEDED)
        facts = _form(settings, tensors)
        if _old_gelu(settings):
            gelu_by_silu(mapped)
        unite_equal_tables(mapped)
        _add_positions(mapped, tensors, options)
        vocabularies = {side: _vocabulary(path, side, mapped, options) for side in ("source", "target")}
        decoding = _decoding(path)
        with_zero_rows(mapped, vocabularies)
        same_place(mapped, vocabularies, [_EOS, _UNK, ZERO_TOKEN])
        special = {"pad_id": ZERO_TOKEN, "start_id": ZERO_TOKEN, "eos_id": _EOS, "unk_id": _UNK}
        facts |= {name: vocabularies["target"].index(token) for name, token in special.items()}
        generation = {**decoding, "suppress_tokens": (facts["unk_id"],)}  # Marian's --allow-unk is off
        sides = [_text_side(path, side, vocabularies[side], options) for side in ("source", "target")]
        found = Found(tensors, mapped, facts, sides[0], sides[1], generation)
        return put_together(path, self.name, found, options)


def _read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Not all in memory at once. Raises CheckpointError for a file that is damaged or too large."""
    try:
        with zipfile.ZipFile(path) as file:
            if sum(info.file_size for info in file.infolist()) > _LARGEST:
                raise CheckpointError(f"{path}: its arrays are larger than {_LARGEST // 2**30} GiB")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: _apart(arrays[name]) for name in arrays.files}
    except (OSError, ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path}: damaged or cut short: {str(error).splitlines()[0]}") from error


def _apart(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return in_file(torch.from_numpy(array)).numpy() if array.dtype.kind == "f" else array


def _settings(arrays: Mapping[str, np.ndarray[Any, Any]], path: Path) -> dict[str, Any]:
    if SETTINGS not in arrays:
        raise CheckpointError(f"{path}: holds no {SETTINGS}; not a model of Marian")
    return _yaml(arrays[SETTINGS].tobytes().rstrip(b"\0").decode("utf-8", "replace"), f"{path}: {SETTINGS}")


def _yaml(text: str, where: str) -> dict[str, Any]:
    import yaml

    try:
        # The parser in C, where there is one, reads a vocabulary in a tenth of the time.
        values = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise CheckpointError(f"{where}: not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{where}: expected names and values")
    return values


def _check_supported(settings: Mapping[str, Any], path: Path) -> None:
    """Raises CheckpointError that names the setting."""
    if settings.get("type") != "transformer":
        raise CheckpointError(
            f"{path}: a Marian model of type {settings.get('type')}; only its Transformer can be imported"
        )
    for name, allowed in _REQUIRED.items():
        if settings.get(name, allowed[0]) not in allowed:
            raise CheckpointError(f"{path}: {name} is {settings[name]!r}; tfexport computes {allowed[0]!r} only")
    form = [_operations(settings, f"transformer-{part}") for part in ("preprocess", "postprocess", "postprocess-top")]
    if "n" in form[0]:
        raise CheckpointError(
            f"{path}: transformer-preprocess {settings['transformer-preprocess']!r}: Marian then norms the queries of "
            "an attention and not its keys and values, which tfexport does not compute"
        )
    if form != ["", "an", ""]:
        raise CheckpointError(
            f"{path}: transformer-postprocess {settings.get('transformer-postprocess')!r} is not 'dan', the form of "
            "the paper"
        )


def _operations(settings: Mapping[str, Any], name: str) -> str:
    """Without dropout, which is for training."""
    return str(settings.get(name) or "").replace("d", "")


def _form(settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    activation = settings.get("transformer-ffn-activation", "swish")
    return {
        "num_heads": settings.get("transformer-heads", 8),
        "norm_position": "post",
        "activation": "silu" if activation == "swish" or _old_gelu(settings) else activation,
        "embedding_norm": "n" in _operations(settings, "transformer-postprocess-emb"),
        "scale_embedding": "Wpos" not in tensors,
        "norm": "layer_norm",
        "norm_eps": 1e-6,
        "positions": "none",
    }


def _old_gelu(settings: Mapping[str, Any]) -> bool:
    """A file that does not tell its version is taken for an old one."""
    found = re.match(r"v(\d+)\.(\d+)\.(\d+)", str(settings.get("version", "")))
    old = found is None or tuple(map(int, found.groups())) <= _GELU_VERSION
    return old and settings.get("transformer-ffn-activation") == "gelu"


def _add_positions(mapped: Mapped, tensors: Mapping[str, Tensor], options: ImportOptions) -> None:
    if "Wpos" in tensors:  # trained
        computed_positions(mapped, tensors["Wpos"].float())
    else:
        width = mapped.weights[EMBEDDINGS["target"]].shape[1]
        computed_positions(mapped, sines_then_cosines(0, wanted_positions(options), width))


# Vocabularies


def _vocabulary(path: Path, side: str, mapped: Mapped, options: ImportOptions) -> list[str]:
    """Tokens by id, as many as the embedding has rows. Raises CheckpointError."""
    rows = len(mapped.weights[EMBEDDINGS[side]])
    if options.ids:
        return [_EOS, _UNK, *map(str, range(2, rows))]
    file = _vocabulary_file(path, side, options)
    tokens = piece_names(file.read_bytes()) if file.suffix in (".spm", ".model") else _read_yml(file)
    if len(tokens) > rows or _EOS not in tokens or _UNK not in tokens:
        raise CheckpointError(
            f"{file}: {len(tokens)} tokens for a {side} embedding of {rows} rows; a vocabulary of Marian has no more, "
            f"and {_EOS} and {_UNK} among them"
        )
    return [*tokens, *(f"<extra {i}>" for i in range(len(tokens), rows))]


def _vocabulary_file(path: Path, side: str, options: ImportOptions) -> Path:
    """The list of ids: a .yml, or the SentencePiece model that is both."""
    given = options.target_tokenizer if side == "target" and options.target_tokenizer else options.source_tokenizer
    if given is not None and given.suffix in (".yml", ".yaml"):
        return given
    short = {"source": "src", "target": "trg"}[side]
    patterns = (f"*vocab*{side}*.yml", f"*vocab*{short}*.yml", f"*{short}*.yml", "*vocab*.yml")
    files = [file for pattern in patterns for file in sorted(path.parent.glob(pattern))]
    spm = [path.parent / f"vocab.{short}.spm", path.parent / "vocab.spm", given if given is not None else path]
    candidates = [*files, *(f for f in spm if f.suffix in (".spm", ".model") and f.is_file())]
    if not candidates:
        raise CheckpointError(
            f"{path}: needs the {side} vocabulary (*vocab*.yml or vocab.spm) beside it; or give it with "
            f"--{side}-tokenizer"
        )
    return candidates[0]


def _read_yml(file: Path) -> list[str]:
    """token: id, as JSON-like YAML."""
    values = _yaml(read_text(file), str(file))
    if not all(type(i) is int and 0 <= i < 4 * len(values) + 1000 for i in values.values()):
        raise CheckpointError(f"{file}: not a vocabulary of Marian, which gives each token its number")
    tokens = [f"<extra {i}>" for i in range(max(values.values()) + 1)]
    for token, i in values.items():
        tokens[i] = str(token)
    return tokens


def _text_side(path: Path, side: str, tokens: list[str], options: ImportOptions) -> TextSide:
    """SentencePiece where it is given or lies beside the model; else text is tokens with spaces between them."""
    given = options.target_tokenizer if side == "target" and options.target_tokenizer else options.source_tokenizer
    if options.ids:
        made = number_list(len(tokens))
    else:
        short = {"source": "src", "target": "trg"}[side]
        beside = [path.parent / name for name in (f"{side}.spm", f"vocab.{short}.spm", "vocab.spm")]
        if given is not None and given.suffix in (".spm", ".model"):
            beside.insert(0, given)
        file = next((file for file in beside if file.is_file()), None)
        made = token_list(tokens) if file is None else read_tokenizer(file, tokens, len(tokens), _UNK)
    language = options.source_language if side == "source" else options.target_language
    before = () if language is None else (token_id(tokens, language, f"--{side}-language"),)
    return replace(made, add_eos=True, prefix_ids=before)


def _decoding(path: Path) -> dict[str, Any]:
    """The settings for decoding beside the model, as far as ours has the same."""
    names = ("decoder.yml", f"{path.name}.decoder.yml")  # the second is what training writes
    file = next((path.parent / name for name in names if (path.parent / name).is_file()), None)
    values = _yaml(read_text(file), str(file)) if file is not None else {}
    normalize = values.get("normalize", 0)
    found = {
        "beam_size": values.get("beam-size"),
        "length_penalty": "average" if normalize else "none",
        "alpha": float(normalize) or None,
        "early_stopping": True,
        "max_length_ratio": float(values.get("max-length-factor", 3)),
        "max_length_extra": 0,
    }
    return {name: value for name, value in found.items() if value is not None}


FORMAT = Marian()
