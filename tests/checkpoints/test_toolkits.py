"""fairseq, OpenNMT-py, JoeyNMT and Marian: what their own code computes with a model, the imported one computes."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.checkpoints.make_toolkits import FOLDER
from tests.checkpoints.tokenizer_fixture import trained
from tfexport.checkpoints import fairseq, joeynmt, marian_npz, opennmt
from tfexport.checkpoints.imported import Format, Imported, ImportOptions
from tfexport.checkpoints.tokenizers.sentencepiece_model import piece_names
from tfexport_runtime.options import TranslationOptions
from tfexport_train.errors import CheckpointError
from tfexport_train.evaluate import TorchTranslator

FORMATS: dict[str, tuple[Format, str]] = {
    "fairseq": (fairseq.FORMAT, "checkpoint_best.pt"),
    "fairseq-cfg": (fairseq.FORMAT, "checkpoint_best.pt"),
    "opennmt": (opennmt.FORMAT, "model.pt"),
    "opennmt-shared": (opennmt.FORMAT, "model.pt"),
    "joeynmt": (joeynmt.FORMAT, ""),
    "joeynmt-post": (joeynmt.FORMAT, "best.ckpt"),
    "marian": (marian_npz.FORMAT, "model.npz"),
}


def read(name: str, folder: Path | None = None, **options: Any) -> Imported:
    known, file = FORMATS[name]
    path = (folder or FOLDER / name) / file
    assert known.recognises(path)
    return known.read(path, ImportOptions(**options))


def translate(imported: Imported, texts: list[str], **changes: Any) -> list[Any]:
    checkpoint = imported.checkpoint
    options = TranslationOptions().with_changes({**checkpoint.generation, **changes})
    return TorchTranslator.from_checkpoint(checkpoint).translate(texts, options)


def expected(name: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / name / "expected.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "marian"])
def test_logits_are_those_of_the_library(name: str) -> None:
    case, checkpoint = expected(name), read(name).checkpoint
    translator = TorchTranslator.from_checkpoint(checkpoint)
    v = translator.vocabularies
    source = [*v.before, *v.source.encode(case["sources"][case["logits_of"]]), *v.after]
    with torch.inference_mode():
        ids = torch.tensor([source])
        memory = translator.model.encode(ids, torch.ones_like(ids, dtype=torch.bool))
        logits = translator.model.decode(memory, torch.ones_like(ids, dtype=torch.bool), torch.tensor([case["target"]]))
    np.testing.assert_allclose(logits[0, -1].numpy(), case["logits"], atol=1e-4)


@pytest.mark.parametrize("name", [name for name in FORMATS if "greedy" in expected(name)])
def test_greedy_search_finds_what_the_library_finds(name: str) -> None:
    case = expected(name)
    found = translate(read(name), case["sources"], beam_size=1, max_length=12)
    assert [t.text for t in found] == case["greedy"]


@pytest.mark.parametrize("name", ["opennmt", "opennmt-shared", "joeynmt", "joeynmt-post"])
def test_best_of_the_librarys_own_beam_search_is_found(name: str) -> None:
    """Its tail is another: they follow four candidates a step, of which some end, and we four that go on."""
    case, imported = expected(name), read(name)
    gnmt = {"length_penalty": "gnmt"} if "joeynmt" in name else {}
    found = translate(
        imported, case["sources"], beam_size=4, n_best=4, max_length=20, min_length=0, max_length_ratio=None, **gnmt
    )
    best = [theirs[0] for theirs in case["own_beam"]]
    assert [t.best.text for t in found] == [h["text"] for h in best]
    assert [t.best.score for t in found] == pytest.approx([h["score"] for h in best], abs=1e-4)


@pytest.mark.parametrize("name", ["fairseq", "fairseq-cfg", "marian"])
@pytest.mark.parametrize("beam", [1, 4])
def test_beam_search_finds_what_the_library_finds(name: str, beam: int) -> None:
    case, imported = expected(name), read(name)
    ways = {"length_penalty": "average", "min_length": int(name == "marian"), "max_length_ratio": None}
    found = translate(imported, case["sources"], beam_size=beam, n_best=beam, max_length=20, **ways)
    compared = 0
    # Where more end in one step than are wanted, fairseq keeps the first ones, and so another tail of the list.
    kept = 1 if name.startswith("fairseq") else beam
    for translation, theirs in zip(found, case["beams"][str(beam)], strict=True):
        ours, theirs = replace(translation, hypotheses=translation.hypotheses[:kept]), theirs[:kept]
        if beam == 1 or not any(h.truncated for h in translation.hypotheses):
            assert [h.text for h in ours.hypotheses] == [h["text"] for h in theirs]
        if not any(h.truncated for h in translation.hypotheses):
            compared += 1
            assert [h.score for h in ours.hypotheses] == pytest.approx([h["score"] for h in theirs], abs=1e-3)
    assert compared >= 2 or (name, beam) == ("fairseq-cfg", 1)


def test_forms_become_what_they_are() -> None:
    configs = {name: read(name).checkpoint.config for name in FORMATS}
    assert {name for name, c in configs.items() if c.norm_position == "pre"} == {
        "fairseq-cfg",
        "opennmt",
        "opennmt-shared",
        "joeynmt",
    }
    assert {name for name, c in configs.items() if c.share_embeddings and c.tie_output} == {
        "fairseq",
        "opennmt-shared",
        "joeynmt-post",
        "marian",
    }
    assert configs["opennmt"].positions == configs["joeynmt"].positions == "sinusoidal"
    assert configs["opennmt-shared"].positions == "learned"
    assert (configs["fairseq"].start_id, configs["fairseq"].eos_id, configs["fairseq"].max_positions) == (2, 2, 1024)
    assert configs["fairseq-cfg"].max_positions == 40
    assert configs["marian"].start_id == configs["marian"].pad_id == 26 == configs["marian"].target_vocab_size - 1
    assert read("marian").checkpoint.generation["suppress_tokens"] == (1,)


# fairseq


def changed_file(name: str, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of the folder, with another checkpoint in it."""
    folder = Path(shutil.copytree(FOLDER / name, tmp_path / "model"))
    path = folder / FORMATS[name][1]
    with torch.serialization.safe_globals(list(fairseq.CLASSES)):
        content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, path)
    return folder


def test_key_names_of_the_first_fairseq(tmp_path: Path) -> None:
    def rename(content: dict[str, Any]) -> None:
        model = content["model"]
        for name in [n for n in model if n.endswith(("q_proj.weight", "q_proj.bias"))]:
            parts = [model.pop(name.replace("q_proj", f"{p}_proj")) for p in "qkv"]
            model[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        for stack, norms in (
            ("encoder", ("self_attn_layer_norm", "final_layer_norm")),
            ("decoder", ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")),
        ):
            for i, norm in enumerate(norms):
                for name in [n for n in model if n.startswith(stack) and f".{norm}." in n]:
                    model[name.replace(norm, f"layer_norms.{i}")] = model.pop(name)
        model.pop("decoder.output_projection.weight", None)

    new, old = read("fairseq"), read("fairseq", changed_file("fairseq", tmp_path, rename))
    assert new.checkpoint.weights.keys() == old.checkpoint.weights.keys()
    assert all(torch.equal(old.checkpoint.weights[n], w) for n, w in new.checkpoint.weights.items())
    assert old.checkpoint.config == new.checkpoint.config


def set_arg(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda content: setattr(content["args"], name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_arg("adaptive_softmax_cutoff", "10,20"), "an adaptive softmax"),
        (set_arg("decoder_attention_heads", 1), "encoder_attention_heads is 2, decoder_attention_heads is 1"),
        (set_arg("activation_fn", "tanh"), "activation tanh"),
        (lambda content: content.update(args=None, cfg={}), "no settings of its model"),
        (lambda content: content["model"].pop("encoder.embed_tokens.weight"), "holds nothing for source_embedding"),
        (lambda content: content["model"].update(extra=torch.ones(3)), r"unused extra \[3\]"),
    ],
)
def test_what_fairseq_has_and_we_do_not_is_refused(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    folder = changed_file("fairseq", tmp_path, change)
    with pytest.raises(CheckpointError, match=message) as caught:
        read("fairseq", folder)
    assert "\n" not in str(caught.value)


def test_a_dictionary_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDER / "fairseq-cfg", tmp_path / "model"))
    (folder / "dict.de.txt").rename(tmp_path / "dict.de.txt")
    with pytest.raises(CheckpointError, match=r"needs the source dictionary: put dict\.de\.txt"):
        read("fairseq-cfg", folder)
    given = tmp_path / "dict.de.txt"
    sides = {"source_tokenizer": given, "target_tokenizer": folder / "dict.en.txt"}
    assert read("fairseq-cfg", folder, **sides).checkpoint.source == read("fairseq-cfg").checkpoint.source
    (folder / "dict.de.txt").write_text("one 1\n", encoding="utf-8")
    (folder / "dict.en.txt").write_text("".join(f"w{i} 1\n" for i in range(99)), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"dict\.en\.txt: makes 103 tokens, the target embedding has 28 rows"):
        read("fairseq-cfg", folder)


def test_sentencepiece_gets_the_ids_of_the_dictionary(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDER / "fairseq-cfg", tmp_path / "model"))
    model = trained("bpe")
    (tmp_path / "bpe.model").write_bytes(model)
    pieces = [piece for piece in piece_names(model) if piece not in ("<unk>", "<s>", "</s>")][-20:]
    (folder / "dict.de.txt").write_text("".join(f"{piece} 1\n" for piece in pieces), encoding="utf-8")
    sides = {"source_tokenizer": tmp_path / "bpe.model", "target_tokenizer": folder / "dict.en.txt"}
    imported = read("fairseq-cfg", folder, source_language=pieces[0], config={"source_add_eos": False}, **sides)
    source = TorchTranslator.from_checkpoint(imported.checkpoint).vocabularies.source
    ids = source.encode(pieces[0].replace("▁", " ") + pieces[3])
    assert {4, 7} <= {*ids} <= {*range(3, 24)}
    assert source.tokens([4, 7]) == [pieces[0], pieces[3]]
    assert (imported.checkpoint.source.prefix_ids, imported.checkpoint.source.add_eos) == ((4,), False)


def test_objects_of_a_trainer_are_not_run(tmp_path: Path) -> None:
    torch.save({"model": {}, "args": argparse.Namespace(), "run": re.compile("x")}, tmp_path / "other.pt")
    assert not any(known.recognises(tmp_path / "other.pt") for known, _ in FORMATS.values())
    assert not any(known.recognises(tmp_path / "nothing.pt") for known, _ in FORMATS.values())


# OpenNMT-py


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("max_relative_positions", 20, "relative or rotary positions"),
        ("self_attn_type", "average", "self_attn_type is 'average'"),
        ("pos_ffn_activation_fn", "tanh", "pos_ffn_activation_fn tanh"),
        ("num_kv", 1, "num_kv is 1"),
    ],
)
def test_what_opennmt_has_and_we_do_not_is_refused(option: str, value: object, message: str, tmp_path: Path) -> None:
    folder = changed_file("opennmt", tmp_path, lambda content: setattr(content["opt"], option, value))
    with pytest.raises(CheckpointError, match=message):
        read("opennmt", folder)


def test_vocabularies_of_torchtext_are_refused_with_a_way_out(tmp_path: Path) -> None:
    folder = changed_file("opennmt", tmp_path, lambda content: content.update(vocab={"src": 3, "tgt": 4}))
    with pytest.raises(CheckpointError, match="written by OpenNMT-py 2 or older"):
        read("opennmt", folder)


def test_padded_vocabularies_have_tokens_without_a_meaning(tmp_path: Path) -> None:
    folder = changed_file("opennmt", tmp_path, lambda content: content["vocab"]["src"].pop())
    assert read("opennmt", folder).checkpoint.source.tokenizer(0).tokens([23]) == ["<extra 23>"]


# JoeyNMT


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("type: transformer", "type: recurrent", "its encoder is of type recurrent"),
        ("layer_norm: pre", "layer_norm: pre\n    alpha: 0.5", "alpha 0.5 weighs residual connections"),
        ("layer_norm: pre", "layer_norm: pre\n    activation: tanh", "activation tanh"),
        ("num_heads: 2", "num_heads: 4", "differ in num_heads"),
        ("model:", "other:", "describes no model"),
        ("data:", "data: [", "not YAML"),
    ],
)
def test_what_joeynmt_has_and_we_do_not_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDER / "joeynmt", tmp_path / "model"))
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    assert old in config
    place = config.index("encoder:") if message != "describes no model" and "YAML" not in message else 0
    (folder / "config.yaml").write_text(config[:place] + config[place:].replace(old, new, 1), encoding="utf-8")
    with pytest.raises(CheckpointError, match=message) as caught:
        read("joeynmt", folder)
    assert "\n" not in str(caught.value)


def test_vocabularies_of_joeynmt_are_named_where_they_lack(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDER / "joeynmt", tmp_path / "model"))
    (folder / "trg_vocab.txt").write_text("<unk>\n<pad>\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match="target vocabulary has 2 tokens, its embedding 28 rows"):
        read("joeynmt", folder)
    (folder / "trg_vocab.txt").unlink()
    with pytest.raises(CheckpointError, match=r"no target vocabulary; expected one of trg_vocab\.txt"):
        read("joeynmt", folder)


def test_a_file_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDER / "joeynmt", tmp_path / "model"))
    (folder / "src_vocab.txt").rename(tmp_path / "secret.txt")
    config = (folder / "config.yaml").read_text(encoding="utf-8").replace("src_vocab.txt", "../secret.txt")
    (folder / "config.yaml").write_text(config, encoding="utf-8")
    with pytest.raises(CheckpointError, match="no source vocabulary"):
        read("joeynmt", folder)


# Marian


def changed_marian(tmp_path: Path, old: str, new: str) -> Path:
    folder = Path(shutil.copytree(FOLDER / "marian", tmp_path / "model"))
    with np.load(folder / "model.npz") as file:
        arrays = dict(file)
    settings = arrays[marian_npz.SETTINGS].tobytes().decode()
    assert old in settings
    arrays[marian_npz.SETTINGS] = np.frombuffer(settings.replace(old, new).encode(), np.int8)
    np.savez(folder / "model.npz", **arrays)
    return folder


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("type: transformer", "type: s2s", "of type s2s; only its Transformer"),
        ("autoreg: self-attention", "autoreg: rnn", "transformer-decoder-autoreg is 'rnn'"),
        ("autoreg: self-attention", "autoreg: average-attention", "'average-attention'; tfexport computes"),
        ("preprocess: ''", "preprocess: n", "norms the queries"),
        ("postprocess: dan", "postprocess: dhn", "is not 'dan'"),
        ("ffn-depth: 2", "ffn-depth: 3", "transformer-ffn-depth is 3"),
        ("type: transformer", "type: [", "not YAML"),
    ],
)
def test_what_marian_has_and_we_do_not_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    folder = changed_marian(tmp_path, old, new)
    with pytest.raises(CheckpointError, match=message) as caught:
        read("marian", folder)
    assert "\n" not in str(caught.value)


def test_marian_with_sentencepiece_and_settings_for_decoding(tmp_path: Path) -> None:
    """vocab.yml gives the ids, source.spm and target.spm cut the text, as in OPUS-MT."""
    folder = Path(shutil.copytree(FOLDER / "marian", tmp_path / "model"))
    model = trained("bpe")
    (folder / "source.spm").write_bytes(model)
    (folder / "target.spm").write_bytes(model)
    pieces = [name for name in piece_names(model) if name not in ("<unk>", "<s>", "</s>")][-20:]
    tokens = {"</s>": 0, "<unk>": 1, **{piece: 2 + i for i, piece in enumerate(pieces)}, ">>fra<<": 22}
    lines = "".join(f"{json.dumps(token, ensure_ascii=False)}: {i}\n" for token, i in tokens.items())
    (folder / "vocab.yml").write_text(lines, encoding="utf-8")
    (folder / "decoder.yml").write_text("beam-size: 6\nnormalize: 0.6\n", encoding="utf-8")
    checkpoint = read("marian", folder, target_language=">>fra<<").checkpoint
    assert checkpoint.target.prefix_ids == (22,)
    assert (checkpoint.generation["beam_size"], checkpoint.generation["alpha"]) == (6, 0.6)
    tokenizer = TorchTranslator.from_checkpoint(checkpoint).vocabularies.source
    text = "".join(pieces[:4])
    assert set(tokenizer.encode(text)) <= {*tokens.values()}
    assert len(set(tokenizer.encode(text)) - {1}) > 2


def test_damaged_npz_files_are_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDER / "marian", tmp_path / "model"))
    data = (folder / "model.npz").read_bytes()
    for length in (0, 10, len(data) // 2):
        (folder / "model.npz").write_bytes(data[:length])
        assert not marian_npz.FORMAT.recognises(folder / "model.npz")
        with pytest.raises(CheckpointError, match="damaged or cut short"):
            marian_npz.FORMAT.read(folder / "model.npz", ImportOptions())
    damaged = bytearray(data)
    damaged[200:600] = bytes(400)
    (folder / "model.npz").write_bytes(damaged)
    with pytest.raises(CheckpointError, match="damaged or cut short"):
        marian_npz.FORMAT.read(folder / "model.npz", ImportOptions())
