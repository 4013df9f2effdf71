"""fairseq, OpenNMT-py, JoeyNMT and Marian: what their own code computes with a model, the imported one computes."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Callable
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
    "fairseq-3-1": (fairseq.FORMAT, "checkpoint_best.pt"),
    "opennmt": (opennmt.FORMAT, "model.pt"),
    "opennmt-shared": (opennmt.FORMAT, "model.pt"),
    "joeynmt": (joeynmt.FORMAT, ""),
    "joeynmt-post": (joeynmt.FORMAT, "best.ckpt"),
    "marian": (marian_npz.FORMAT, "model.npz"),
    "marian-3-1": (marian_npz.FORMAT, "model.npz"),
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


@pytest.mark.parametrize("name", [name for name in FORMATS if "marian" not in name])
def test_logits_of_a_ragged_batch_are_those_of_the_library(name: str) -> None:
    """Of all sources in one batch, the shorter ones padded."""
    case, checkpoint = expected(name), read(name).checkpoint
    translator = TorchTranslator.from_checkpoint(checkpoint)
    v = translator.vocabularies
    sources = [[*v.before, *v.source.encode(text), *v.after] for text in case["sources"]]
    width, pad = max(map(len, sources)), checkpoint.config.pad_id
    ids = torch.tensor([[*s, *[pad] * (width - len(s))] for s in sources])
    mask = torch.tensor([[i < len(s) for i in range(width)] for s in sources])
    with torch.inference_mode():
        target = torch.tensor([case["target"]] * len(sources))
        logits = translator.model.decode(translator.model.encode(ids, mask), mask, target)
    np.testing.assert_allclose(logits[:, -1].numpy(), case["logits"], atol=1e-4)


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


@pytest.mark.parametrize("name", ["fairseq", "fairseq-3-1"])
@pytest.mark.parametrize("beam", [1, 5])
def test_a_trained_model_of_fairseq_finds_what_its_own_search_finds(name: str, beam: int) -> None:
    """Its scores lack what it takes away from the end at the first place and gives to no other token."""
    case = expected(name)
    found = translate(read(name), case["sources"], beam_size=beam, n_best=beam, max_length=20)
    theirs = case["beams"][str(beam)]
    assert [[h.text for h in t.hypotheses] for t in found] == [[h["text"] for h in each] for each in theirs]
    for translation, each in zip(found, theirs, strict=True):
        assert [h.score for h in translation.hypotheses] == pytest.approx([h["score"] for h in each], abs=5e-3)


@pytest.mark.parametrize("name", ["marian", "marian-3-1"])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_trained_model_of_marian_finds_what_marian_finds(name: str, beam: int) -> None:
    """The log-probability of every token too. Of several beams the best ones: its tail is another, as above."""
    case = expected(name)
    ways = {"length_penalty": "average", "alpha": 1.0, "max_length": 20, "suppress_tokens": ()}
    found = translate(read(name), case["sources"], beam_size=beam, n_best=beam, **ways)
    for translation, theirs in zip(found, case["beams"][str(beam)], strict=True):
        for ours, known in zip(translation.hypotheses[:2], theirs[:2], strict=True):
            assert ours.text == known["text"]
            assert ours.score == pytest.approx(known["score"], abs=1e-4)
            assert ours.token_scores == pytest.approx(known["tokens"], abs=1e-4)


def test_layers_are_as_many_as_in_the_file() -> None:
    configs = {name: read(name).checkpoint.config for name in FORMATS}
    layers = {name: (c.num_encoder_layers, c.num_decoder_layers) for name, c in configs.items()}
    assert set(layers.values()) == {(2, 2), (3, 1)}
    for toolkit in ("fairseq", "opennmt", "joeynmt", "marian"):
        assert len({shape for name, shape in layers.items() if name.startswith(toolkit)}) == 2


def test_forms_become_what_they_are() -> None:
    configs = {name: read(name).checkpoint.config for name in FORMATS}
    assert {name for name, c in configs.items() if c.norm_position == "pre"} == {
        "fairseq-3-1",
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
    assert configs["fairseq-3-1"].embedding_norm
    assert configs["fairseq-3-1"].max_positions == 40
    assert configs["marian"].start_id == configs["marian"].pad_id == 26 == configs["marian"].target_vocab_size - 1
    checkpoint = read("marian").checkpoint
    assert checkpoint.generation["suppress_tokens"] == (1,)
    assert (checkpoint.generation["beam_size"], checkpoint.generation["length_penalty"]) == (12, "none")
    apart = configs["marian-3-1"]
    assert (apart.source_vocab_size, apart.target_vocab_size, apart.start_id, apart.eos_id) == (23, 27, 2, 0)


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
        content.update(args=content["cfg"]["model"], cfg=None)  # to version 0.10

    new, old = read("fairseq"), read("fairseq", changed_file("fairseq", tmp_path, rename))
    assert new.checkpoint.weights.keys() == old.checkpoint.weights.keys()
    assert all(torch.equal(old.checkpoint.weights[n], w) for n, w in new.checkpoint.weights.items())
    assert old.checkpoint.config == new.checkpoint.config


def set_arg(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda content: setattr(content["cfg"]["model"], name, value)


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
    folder = Path(shutil.copytree(FOLDER / "fairseq-3-1", tmp_path / "model"))
    (folder / "dict.de.txt").rename(tmp_path / "dict.de.txt")
    with pytest.raises(
        CheckpointError, match=r"needs the source dictionary .*: put dict\.de\.txt beside it, .* dict\.en\.txt"
    ):
        read("fairseq-3-1", folder)
    given = tmp_path / "dict.de.txt"
    sides = {"source_tokenizer": given, "target_tokenizer": folder / "dict.en.txt"}
    assert read("fairseq-3-1", folder, **sides).checkpoint.source == read("fairseq-3-1").checkpoint.source
    (folder / "dict.de.txt").write_text("one 1\n", encoding="utf-8")
    (folder / "dict.en.txt").write_text("".join(f"w{i} 1\n" for i in range(99)), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"dict\.en\.txt: makes 103 tokens, the target embedding has 24 rows"):
        read("fairseq-3-1", folder)


def test_dictionaries_without_languages_must_be_one(tmp_path: Path) -> None:
    """fairseq-train takes the languages from the data, and then they are not in the file."""
    folder = Path(shutil.copytree(FOLDER / "fairseq", tmp_path / "model"))
    assert read("fairseq", folder).checkpoint.source.model == read("fairseq", folder).checkpoint.target.model
    (folder / "dict.de.txt").write_text("other 1\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"settings do not name its languages.*dict\.de\.txt, dict\.en\.txt"):
        read("fairseq", folder)


def test_sentencepiece_gets_the_ids_of_the_dictionary(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDER / "fairseq-3-1", tmp_path / "model"))
    model = trained("bpe")
    (tmp_path / "bpe.model").write_bytes(model)
    pieces = [piece for piece in piece_names(model) if piece not in ("<unk>", "<s>", "</s>")][-20:]
    (folder / "dict.de.txt").write_text("".join(f"{piece} 1\n" for piece in pieces), encoding="utf-8")
    sides = {"source_tokenizer": tmp_path / "bpe.model", "target_tokenizer": folder / "dict.en.txt"}
    imported = read("fairseq-3-1", folder, source_language=pieces[0], config={"source_add_eos": False}, **sides)
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
        ("attention-mask: default", "attention-mask: alibi", "attention-mask is 'alibi'; tfexport computes 'default'"),
        ("autoreg: self-attention", "autoreg: rnn", "transformer-decoder-autoreg is 'rnn'"),
        ("autoreg: self-attention", "autoreg: average-attention", "'average-attention'; tfexport computes"),
        ('preprocess: ""', "preprocess: n", "norms the queries"),
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


def test_gelu_of_older_marians_is_the_one_that_they_had(tmp_path: Path) -> None:
    """x sigmoid(1.702 x) up to 1.12.0."""
    new, old = read("marian"), read("marian", changed_marian(tmp_path, "version: v1.12.42", "version: v1.12.0"))
    assert (new.checkpoint.config.activation, old.checkpoint.config.activation) == ("gelu", "silu")
    x = torch.randn(3, 8)
    blocks = [imported.checkpoint.build_model().encoder_layers[0].feed_forward for imported in (new, old)]
    with torch.inference_mode():
        hidden = blocks[0].up(x)
        expected = blocks[0].down(hidden * (1.702 * hidden).sigmoid())
        torch.testing.assert_close(blocks[1](x), expected)


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
