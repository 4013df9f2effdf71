"""Writes data/ctranslate2/: tiny models with random weights by CTranslate2 itself, and what it translates with them.

`python -m tests.checkpoints.make_ctranslate2` from the root of the repository, in an environment with `ctranslate2` and
`torch` (for bfloat16). Between them the models have every form that can be imported.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "data" / "ctranslate2"
WIDTH, INNER, HEADS = 8, 12, 2
LONGEST = 20  # tokens of a translation
SOURCE = ["<blank>", "<s>", "</s>", *(f"s{i}" for i in range(27))]
TARGET = ["<s>", "</s>", "<unk>", *(f"t{i}" for i in range(35))]
SHARED = ["<unk>", "<s>", "</s>", "<pad>", "__xx__", *(f"w{i}" for i in range(32))]
FORMS: dict[str, dict[str, Any]] = {
    "post-norm": {"layers": (3, 1), "pre_norm": False, "activation": "GELU", "quantization": "float32", "end": 5.0},
    "pre-norm": {"layers": (2, 2), "quantization": "int16"},
    "embedding-norm": {
        "layers": (2, 2),
        "pre_norm": False,
        "layernorm_embedding": True,
        "learned": True,
        "shared": True,
    },
    "zero-start": {"layers": (3, 1), "pre_norm": False, "activation": "SWISH", "zero_start": True},
    "t5": {"layers": (2, 2), "activation": "GELUTanh", "t5": True, "shared": True, "quantization": "int8"},
    "bfloat16": {"layers": (3, 1), "quantization": "bfloat16", "activation": "GELUSigmoid", "factor": 3.0},
}


def texts(tokens: list[str]) -> list[list[str]]:
    """Ragged, with an unknown token."""
    generator = np.random.default_rng(4)
    made = [[tokens[i] for i in generator.integers(5, len(tokens), length)] for length in (1, 4, 9, 2, 6, 13, 3)]
    return [*made, [tokens[7], "strange", tokens[8]]]


def _make(name: str, form: dict[str, Any]) -> None:
    """With the first seed whose translations end, most of them, and differ."""
    for seed in range(200):
        expected = _attempt(name, form, seed)
        best = [h[0]["text"] for found in expected.values() for h in found]
        ended = [all(len(h["text"].split()) < LONGEST for h in each) for found in expected.values() for each in found]
        if sum(ended) >= 10 and len(set(best)) >= 8 and all(best):
            return
    raise SystemExit(f"{name}: no seed gives a search that ends")


def _attempt(name: str, form: dict[str, Any], seed: int) -> dict[str, Any]:
    import ctranslate2
    from ctranslate2.specs import common_spec, transformer_spec

    shared = form.get("shared", False)
    t5 = form.get("t5", False)
    spec = transformer_spec.TransformerSpec.from_config(
        form["layers"],
        HEADS,
        pre_norm=form.get("pre_norm", True),
        activation=common_spec.Activation[form.get("activation", "RELU")],
        layernorm_embedding=form.get("layernorm_embedding", False),
        relative_attention_bias=t5,
        ffn_glu=t5,
        rms_norm=t5,
    )
    source, target = (SHARED, SHARED) if shared else (SOURCE, TARGET)
    _fill(spec, form, seed, len(source) + (not shared), len(target))
    spec.register_source_vocabulary(source if shared else [*source, "<unk>"])
    spec.register_target_vocabulary(target)
    spec.config.add_source_eos = shared
    spec.config.add_source_bos = form.get("learned", False)
    spec.config.decoder_start_token = "<pad>" if t5 else "<s>"
    if t5:
        spec.config.layer_norm_epsilon = 1e-5
    spec.validate()
    spec.optimize(quantization=form.get("quantization", "float16"))
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spec.save(str(folder))
    # A trained model never thinks of these.
    never = ["<pad>"] * shared + ["<s>"] * (not t5 and not form.get("zero_start", False))
    translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    expected = {
        str(beam): [
            [
                {"text": " ".join(tokens), "score": round(score, 6)}
                for tokens, score in zip(r.hypotheses, r.scores, strict=True)
            ]
            for r in translator.translate_batch(
                texts(source),
                beam_size=beam,
                num_hypotheses=beam,
                return_scores=True,
                max_decoding_length=LONGEST,
                suppress_sequences=[[token] for token in never],
            )
        ]
        for beam in (1, 4)
    }
    values = {"ctranslate2": ctranslate2.__version__, "sources": texts(source), "expected": expected}
    (folder / "expected.json").write_text(json.dumps(values) + "\n", encoding="utf-8")
    return expected


def _fill(spec: Any, form: dict[str, Any], seed: int, source_size: int, target_size: int) -> None:
    """Random weights, large enough for outputs that differ."""
    generator = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray:
        return (2 * generator.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)

    def linear(part: Any, out: int, inner: int) -> None:
        part.weight = matrix(out, inner)
        if not form.get("t5"):
            part.bias = 0.3 * matrix(out)

    def norm(part: Any) -> None:
        part.gamma = 1 + 0.2 * matrix(WIDTH)
        if not form.get("t5"):
            part.beta = 0.2 * matrix(WIDTH)

    def attention(part: Any, self_attention: bool) -> None:
        sizes = (3, 1) if self_attention else (1, 2, 1)
        for each, size in zip(part.linear, sizes, strict=True):
            linear(each, size * WIDTH, WIDTH)
        norm(part.layer_norm)
        if form.get("t5"):
            part.queries_scale = 1.0

    for stack, size in ((spec.encoder, source_size), (spec.decoder, target_size)):
        tables = stack.embeddings if isinstance(stack.embeddings, list) else [stack.embeddings]
        tables[0].weight = matrix(size, WIDTH)
        stack.scale_embeddings = form.get("factor", not form.get("t5", False))
        if form.get("learned"):
            stack.position_encodings.encodings = matrix(40, WIDTH)
        bias = matrix(8, HEADS)
        for layer in stack.layer:
            attention(layer.self_attention, True)
            if stack is spec.decoder:
                attention(layer.attention, False)
            if form.get("t5"):
                layer.self_attention.relative_attention_bias = bias
                layer.self_attention.relative_attention_max_distance = np.dtype("int32").type(20)
                linear(layer.ffn.linear_0_noact, INNER, WIDTH)
            linear(layer.ffn.linear_0, INNER, WIDTH)
            linear(layer.ffn.linear_1, WIDTH, INNER)
            norm(layer.ffn.layer_norm)
        for part in ("layer_norm", "layernorm_embedding"):
            if hasattr(stack, part):
                norm(getattr(stack, part))
    linear(spec.decoder.projection, target_size, WIDTH)
    spec.decoder.projection.bias = 0.3 * matrix(target_size)
    spec.decoder.projection.bias[2 if form.get("shared") else 1] += form.get("end", 3.0)  # outputs end
    if form.get("shared"):
        spec.decoder.embeddings.weight = spec.encoder.embeddings[0].weight
    if form.get("shared") and not form.get("t5"):
        spec.decoder.projection.weight = spec.encoder.embeddings[0].weight
    if form.get("t5"):
        spec.decoder.scale_outputs = WIDTH**-0.5
    spec.decoder.start_from_zero_embedding = form.get("zero_start", False)


def main() -> None:
    for name, form in FORMS.items():
        _make(name, form)


if __name__ == "__main__":
    main()
