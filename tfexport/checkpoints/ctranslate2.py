"""A CTranslate2 model folder: model.bin, vocabularies, config.json.

Names and meanings are those of CTranslate2's TransformerSpec. What it can express and we cannot is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tfexport.checkpoints.ctranslate2_file import ModelFile, read_model_file
from tfexport.checkpoints.ctranslate2_text import (
    read_config,
    read_vocabularies,
    special_ids,
    text_side,
    with_ends,
    with_language,
)
from tfexport.checkpoints.imported import Imported, ImportOptions
from tfexport.checkpoints.mapping import Mapped, Rule, map_weights
from tfexport.checkpoints.toolkit import (
    EMBEDDINGS,
    TABLES,
    ZERO_TOKEN,
    Found,
    check_complete,
    check_sizes,
    computed_positions,
    gelu_by_silu,
    put_together,
    sines_then_cosines,
    unite_equal_tables,
    wanted_positions,
    with_zero_rows,
)
from tfexport_train.errors import CheckpointError

MODEL_FILE = "model.bin"
_SPECIFICATIONS = ("TransformerSpec", "TransformerBase", "TransformerBig")
_SIDES = {"encoder": "source", "decoder": "target"}
_ACTIVATIONS = ("relu", "gelu_tanh", "silu", "gelu", "silu")
_GELU_BY_SIGMOID = 4  # number of x sigmoid(1.702 x), which is computed by silu
_GATED = ("reglu", "geglu_tanh", "swiglu", "geglu")
_REFUSED = {
    "relative_position_keys": "relative positions of Shaw et al. 2018",
    "rotary_dim": "rotary positions",
    "num_heads_kv": "fewer heads for keys and values",
    "sliding_window": "a sliding window",
    "q_norm/gamma": "norms of queries and keys",
    "layer_norm_use_residual": "norms that begin at 1",
    "memory_kv/weight": "merged attention",
    "pre_feedforward_layer_norm/gamma": "four norms a layer",
    "linear_0/weight_zero": "weights in 4 bits",
}

_NEEDED = (
    *EMBEDDINGS.values(),
    "output.weight",
    *(
        f"{stack}_layers.0.{part}"
        for stack in _SIDES
        for part in ("self_attention.q_proj.weight", "feed_forward.up.weight")
    ),
)
_QUERIES_SCALE = re.compile(r"(encoder|decoder)/layer_(\d+)/(self_attention|attention)/queries_scale")
# CTranslate2's beam search in our terms: it ends with as many finished hypotheses as beams, and forbids an
# empty output.
GENERATION: Mapping[str, Any] = {
    "early_stopping": True,
    "length_penalty": "average",
    "min_length": 1,
    "max_length": 256,
    "max_length_ratio": None,
}


def _attention(theirs: str, ours: str, self_attention: bool) -> Iterator[Rule]:
    def parts(names: str) -> tuple[str, ...]:
        return tuple(f"{ours}.{name}_proj.{{x}}" for name in names)

    if self_attention:
        yield Rule(f"{theirs}/linear_0/{{x}}", parts("qkv"))
        yield Rule(f"{theirs}/linear_1/{{x}}", f"{ours}.out_proj.{{x}}")
    else:
        yield Rule(f"{theirs}/linear_0/{{x}}", parts("q"))
        yield Rule(f"{theirs}/linear_1/{{x}}", parts("kv"))
        yield Rule(f"{theirs}/linear_2/{{x}}", f"{ours}.out_proj.{{x}}")
    yield from _norm(f"{theirs}/layer_norm", f"{ours}_residual.norm")


def _norm(theirs: str, ours: str) -> list[Rule]:
    return [Rule(f"{theirs}/gamma", f"{ours}.weight"), Rule(f"{theirs}/beta", f"{ours}.bias")]


def _rules(gated: bool) -> Iterator[Rule]:
    for stack, side in _SIDES.items():
        layer, ours = f"{stack}/layer_{{i}}", f"{stack}_layers.{{i}}"
        yield from _attention(f"{layer}/self_attention", f"{ours}.self_attention", self_attention=True)
        if stack == "decoder":
            yield from _attention(f"{layer}/attention", f"{ours}.cross_attention", self_attention=False)
        yield Rule(f"{layer}/ffn/linear_0/{{x}}", f"{ours}.feed_forward.{'gate' if gated else 'up'}.{{x}}")
        yield Rule(f"{layer}/ffn/linear_0_noact/{{x}}", f"{ours}.feed_forward.up.{{x}}")
        yield Rule(f"{layer}/ffn/linear_1/{{x}}", f"{ours}.feed_forward.down.{{x}}")
        yield from _norm(f"{layer}/ffn/layer_norm", f"{ours}.feed_forward_residual.norm")
        yield from _norm(f"{stack}/layer_norm", f"{stack}_norm")
        yield from _norm(f"{stack}/layernorm_embedding", f"{side}_embedding.norm")
        yield Rule(f"{stack}/embeddings/weight", EMBEDDINGS[side])
        yield Rule(f"{stack}/embeddings_0/weight", EMBEDDINGS[side])
        yield Rule(f"{stack}/position_encodings/encodings", TABLES[side])
        yield Rule(f"{stack}/layer_0/self_attention/relative_attention_bias", f"{stack}_relative_bias.weight")
    yield Rule("decoder/projection/{x}", "output.{x}")


@dataclass(frozen=True)
class CTranslate2Folder:
    name: str = "CTranslate2 folder"

    def recognises(self, path: Path) -> bool:
        return path.is_dir() and (path / MODEL_FILE).is_file() and any(path.glob("*vocabulary*"))

    def read(self, path: Path, options: ImportOptions) -> Imported:
        file = read_model_file(path / MODEL_FILE)
        _check_supported(file, path)
        names = read_config(path, file)
        mapped = map_weights(file.weights, _rules(_is_gated(file)), drop=["*/relative_attention_bias"])
        check_complete(mapped, path, _NEEDED)
        facts = {**_form(file, names, path), **_fold_scales(mapped, file)}
        if file.attribute("encoder/activation", 0) == _GELU_BY_SIGMOID:
            gelu_by_silu(mapped)
        unite_equal_tables(mapped)
        if not any(name in mapped.weights for name in TABLES.values()) and not facts["relative_buckets"]:
            width = mapped.weights[EMBEDDINGS["target"]].shape[1]
            computed_positions(mapped, sines_then_cosines(1, wanted_positions(options), width))
        vocabularies = read_vocabularies(path, names)
        check_sizes(mapped, vocabularies, path)
        if file.attributes.get("decoder/start_from_zero_embedding", 0):
            with_zero_rows(mapped, vocabularies)
            names["decoder_start_token"] = ZERO_TOKEN
        facts |= special_ids(mapped, vocabularies, names, path)
        start = vocabularies["target"][facts["start_id"]]
        sides = {side: text_side(side, vocabularies, names, path, options) for side in vocabularies}
        source = with_ends(sides["source"], vocabularies["source"], names, start, options)
        target = with_language(sides["target"], vocabularies["target"], options)
        found = Found(file.weights, mapped, facts, source, target, GENERATION)
        return put_together(path, f"{self.name}, format {file.version}", found, options)


def _check_supported(file: ModelFile, path: Path) -> None:
    """Raises CheckpointError that names what we do not have."""
    if file.specification not in _SPECIFICATIONS:
        raise CheckpointError(
            f"{path}: a CTranslate2 {file.specification}; only encoder-decoder Transformers ({_SPECIFICATIONS[0]}) "
            "can be imported"
        )
    names = [*file.weights, *file.attributes]
    for ending, meaning in _REFUSED.items():
        if any(name.endswith("/" + ending) for name in names):
            raise CheckpointError(f"{path}: has {meaning}, which tfexport does not compute; it cannot be imported")
    if "encoder/embeddings_1/weight" in file.weights:
        raise CheckpointError(f"{path}: reads several inputs a token (source features); it cannot be imported")
    if file.attributes.get("decoder/alibi", 0):
        raise CheckpointError(f"{path}: has linear biases for positions (ALiBi); it cannot be imported")


def _is_gated(file: ModelFile) -> bool:
    return "encoder/layer_0/ffn/linear_0_noact/weight" in file.weights


def _form(file: ModelFile, config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The form of the model, both stacks alike. Raises CheckpointError where they differ."""
    heads = 16 if file.specification == "TransformerBig" else 8
    forms = []
    for stack in _SIDES:
        activation = int(file.attribute(f"{stack}/activation", 0))
        known = _GATED if _is_gated(file) else _ACTIVATIONS
        if activation >= len(known):
            raise CheckpointError(f"{path}: activation number {activation} of CTranslate2 is not one that tfexport has")
        forms.append(
            {
                "num_heads": int(file.attribute(f"{stack}/num_heads", heads)),
                "norm_position": "pre" if file.attribute(f"{stack}/pre_norm", 1) else "post",
                "activation": known[activation],
                "embedding_norm": f"{stack}/layernorm_embedding/gamma" in file.weights,
            }
        )
    if forms[0] != forms[1]:
        unlike = [name for name in forms[0] if forms[0][name] != forms[1][name]]
        raise CheckpointError(f"{path}: encoder and decoder differ in {', '.join(unlike)}; it cannot be imported")
    rms = "encoder/layer_0/ffn/layer_norm/beta" not in file.weights
    epsilon = config.get("layer_norm_epsilon") or (1e-6 if rms else 1e-5)
    return {
        **forms[0],
        **_head_size(file, int(forms[0]["num_heads"])),
        **_relative(file),
        "norm": "rms_norm" if rms else "layer_norm",
        "norm_eps": float(epsilon),
        "positions": "none",
    }


def _head_size(file: ModelFile, heads: int) -> dict[str, Any]:
    inner = file.weights["encoder/layer_0/self_attention/linear_0/weight"].shape[0] // 3
    return {"head_dim": inner // heads} if inner != file.weights["decoder/projection/weight"].shape[1] else {}


def _relative(file: ModelFile) -> dict[str, Any]:
    """T5's relative positions, which every layer names and all share."""
    table = file.weights.get("encoder/layer_0/self_attention/relative_attention_bias")
    if table is None:
        return {"relative_buckets": 0}
    distance = file.attributes["encoder/layer_0/self_attention/relative_attention_max_distance"]
    return {"relative_buckets": table.shape[0], "relative_max_distance": int(distance)}


def _fold_scales(mapped: Mapped, file: ModelFile) -> dict[str, Any]:
    """Factors that the file keeps apart go into weights, as far as ours has none for them."""
    weights = mapped.weights
    heads = {stack: file.attribute(f"{stack}/num_heads", 8) for stack in _SIDES}
    for name, scale in file.attributes.items():
        found = _QUERIES_SCALE.fullmatch(name)
        if found is not None:
            stack, i, kind = found.groups()
            query = f"{stack}_layers.{i}.{'cross' if kind == 'attention' else 'self'}_attention.q_proj"
            _multiply(weights, query, scale * (weights[f"{query}.weight"].shape[0] / heads[stack]) ** 0.5)
    outputs = file.attributes.get("decoder/scale_outputs", 1.0)
    _multiply(weights, "decoder_norm" if "decoder_norm.weight" in weights else "output", outputs)
    factors = {side: _embedding_scale(file, stack) for stack, side in _SIDES.items()}
    if all(factor is None for factor in factors.values()):
        return {"scale_embedding": True}
    for side, factor in factors.items():
        root = weights[EMBEDDINGS[side]].shape[1] ** 0.5
        _multiply(weights, EMBEDDINGS[side].removesuffix(".weight"), root if factor is None else factor)
    return {"scale_embedding": False}


def _multiply(weights: dict[str, Tensor], name: str, factor: float) -> None:
    if factor == 1.0:
        return
    parts = ("weight",) if name == "output" else ("weight", "bias")  # the output's own bias is added afterwards
    for part in (f"{name}.{part}" for part in parts):
        if part in weights:
            weights[part] = weights[part] * factor


def _embedding_scale(file: ModelFile, stack: str) -> float | None:
    """None: the root of d_model, by a flag or by default."""
    for name in (f"{stack}/scale_embeddings", f"{stack}/embeddings/multiply_by_sqrt_depth"):
        if name in file.attributes:
            value = file.attributes[name]
            return value if name not in file.flags else (None if value else 1.0)
    return None


FORMAT = CTranslate2Folder()
