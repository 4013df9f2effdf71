"""CTranslate2 folders: what CTranslate2 translates, we translate, token for token, with its scores."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoints.make_ctranslate2 import FOLDER, FORMS
from tfexport.checkpoints.ctranslate2 import FORMAT
from tfexport.checkpoints.ctranslate2_file import read_model_file
from tfexport.checkpoints.imported import Imported, ImportOptions
from tfexport_runtime.options import TranslationOptions
from tfexport_train.errors import CheckpointError, ConfigError
from tfexport_train.evaluate import TorchTranslator, exact_match


def read(path: Path, **options: Any) -> Imported:
    return FORMAT.read(path, ImportOptions(**options))


def translate(imported: Imported, texts: list[str], **changes: Any) -> list[Any]:
    checkpoint = imported.checkpoint
    options = TranslationOptions().with_changes({**checkpoint.generation, **changes})
    return TorchTranslator.from_checkpoint(checkpoint).translate(texts, options)


@pytest.mark.parametrize("form", FORMS)
def test_tokens_and_scores_are_those_of_ctranslate2(form: str) -> None:
    expected = json.loads((FOLDER / form / "expected.json").read_text(encoding="utf-8"))
    texts = [" ".join(tokens) for tokens in expected["sources"]]
    imported = read(FOLDER / form)
    ended = 0
    for beam in (1, 4):
        found = translate(imported, texts, beam_size=beam, n_best=beam, max_length=20)
        for ours, theirs in zip(found, expected["expected"][str(beam)], strict=True):
            if any(h.truncated for h in ours.hypotheses):  # theirs compete with ended ones, ours come after them
                assert {h.text for h in ours.hypotheses} & {h["text"] for h in theirs}
                continue
            ended += 1
            assert [h.text for h in ours.hypotheses] == [h["text"] for h in theirs]
            assert [h.score for h in ours.hypotheses] == pytest.approx([h["score"] for h in theirs], abs=1e-4)
    assert ended >= 6


def test_forms_become_what_they_are() -> None:
    configs = {form: read(FOLDER / form).checkpoint.config for form in FORMS}
    assert {form: c.norm_position for form, c in configs.items() if c.norm_position == "post"}.keys() == {
        "post-norm",
        "embedding-norm",
        "zero-start",
    }
    assert configs["t5"].norm == "rms_norm"
    assert configs["t5"].relative_buckets == 8
    assert configs["t5"].activation == "geglu_tanh"
    assert configs["embedding-norm"].embedding_norm
    assert configs["embedding-norm"].max_positions == 40
    assert configs["embedding-norm"].tie_output
    assert configs["embedding-norm"].share_embeddings
    zero = configs["zero-start"]
    assert (zero.start_id, zero.pad_id, zero.source_vocab_size, zero.target_vocab_size) == (0, 0, 32, 39)
    assert not configs["bfloat16"].scale_embedding
    layers = {form: (c.num_encoder_layers, c.num_decoder_layers) for form, c in configs.items()}
    assert layers == {form: values["layers"] for form, values in FORMS.items()}


def test_special_tokens_with_other_ids_on_each_side_move_to_one() -> None:
    checkpoint = read(FOLDER / "pre-norm").checkpoint
    source, target = (side.tokenizer(checkpoint.config.unk_id) for side in (checkpoint.source, checkpoint.target))
    c = checkpoint.config
    for tokenizer in (source, target):
        assert tokenizer.tokens([c.start_id, c.eos_id, c.unk_id]) == ["<s>", "</s>", "<unk>"]
    assert (source.size, target.size) == (c.source_vocab_size, c.target_vocab_size) == (31, 38)


def test_languages_are_tokens_before_the_texts() -> None:
    checkpoint = read(FOLDER / "embedding-norm", source_language="w3", target_language="__xx__").checkpoint
    assert (checkpoint.source.prefix_ids, checkpoint.target.prefix_ids) == ((8,), (4,))
    assert (checkpoint.source.add_bos, checkpoint.source.add_eos) == (True, True)
    with pytest.raises(CheckpointError, match="--target-language: 'eng' is not in the vocabulary"):
        read(FOLDER / "embedding-norm", target_language="eng")


def test_facts_of_a_person_count_more() -> None:
    config = {"max_positions": 25, "source_add_eos": False}
    checkpoint = read(FOLDER / "embedding-norm", config=config).checkpoint
    assert checkpoint.config.max_positions == 25
    assert not checkpoint.source.add_eos
    assert read(FOLDER / "pre-norm", config={"max_positions": 70}).checkpoint.config.max_positions == 70
    with pytest.raises(ConfigError, match="unknown colour"):
        read(FOLDER / "pre-norm", config={"colour": 1})


def test_ids_instead_of_a_tokenizer() -> None:
    checkpoint = read(FOLDER / "zero-start", ids=True).checkpoint
    assert checkpoint.source.tokenizer(0).encode("3 5") == [3, 5]
    assert checkpoint.source.tokenizer(0).size == checkpoint.config.source_vocab_size == 32


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER / "pre-norm", tmp_path / "model"))


def test_damaged_files_are_refused_in_one_line(copy: Path) -> None:
    data = (copy / "model.bin").read_bytes()
    for length in [0, 1, 4, 9, 20, 40, *range(100, len(data), len(data) // 20), len(data) - 1]:
        (copy / "model.bin").write_bytes(data[:length])
        with pytest.raises(CheckpointError, match=r"model\.bin") as caught:
            read(copy)
        assert "\n" not in str(caught.value)
    generator = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(data)
        for place in generator.integers(0, 400, 3):
            damaged[place] = int(generator.integers(256))
        (copy / "model.bin").write_bytes(damaged)
        with contextlib.suppress(CheckpointError):  # and no other
            read(copy)


def test_sizes_in_a_file_are_not_believed(copy: Path) -> None:
    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    head = struct.pack("<I", 6) + text("TransformerSpec") + struct.pack("<I", 7)
    huge = struct.pack("<I", 1) + text("a") + struct.pack("<BIIBI", 2, 2**31, 2**31, 0, 2**32 - 1)
    for content, message in (
        (head + struct.pack("<I", 2**31), "variables"),
        (head + huge, "has 4294967295 bytes"),
        (struct.pack("<I", 7) + head[4:], "version 7; this version reads 2 to 6"),
        (head.replace(b"TransformerSpec", b"TransformerXpec") + b"\0" * 8, "TransformerXpec"),
    ):
        (copy / "model.bin").write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            read(copy)


Change = Callable[[Path], object]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: (p / "target_vocabulary.json").unlink(), "no target vocabulary"),
        (lambda p: (p / "target_vocabulary.json").write_text('["a"]'), "vocabulary has 2 tokens, .* 38 rows"),
        (lambda p: (p / "config.json").write_text('{"eos_token": "<end>"}'), "lacks '<end>'"),
        (lambda p: (p / "target_vocabulary.json").write_text("{"), "not JSON"),
        (lambda p: (p / "config.json").write_text("["), "not JSON"),
        (lambda p: (p / "source_vocabulary.json").write_text('["<unk>", "<s>"]'), "has 2 tokens, .* 31 rows"),
    ],
)
def test_folders_that_do_not_fit_together_are_refused(change: Change, message: str, copy: Path) -> None:
    change(copy)
    with pytest.raises(CheckpointError, match=message):
        read(copy)


def test_only_a_whole_folder_is_recognised(copy: Path) -> None:
    assert FORMAT.recognises(copy)
    assert not FORMAT.recognises(copy / "model.bin")
    (copy / "model.bin").unlink()
    assert not FORMAT.recognises(copy)


@pytest.mark.parametrize("kind", ["", "-i16", "-i8"])
def test_the_published_transliteration_model_in_each_precision(kind: str, data_folder: Path) -> None:
    path = data_folder / "ct2_aren" / f"aren-transliteration{kind}"
    imported = read(path)
    assert read_model_file(path / "model.bin").version == 2
    assert imported.checkpoint.source.kind == imported.checkpoint.target.kind == "characters"
    (best,) = translate(imported, ["آتزمون"], beam_size=4, n_best=3)
    assert [h.text for h in best.hypotheses] == ["atzmon", "atzumon", "atzmun"]
    if not kind:
        assert [h.score for h in best.hypotheses] == pytest.approx([-0.1517, -0.2660, -0.3351], abs=1e-4)


def test_the_published_transliteration_model_matches_as_often_as_in_ctranslate2(data_folder: Path) -> None:
    """CTranslate2 4.8.5: 22.1 per cent of all words greedily; 24.5 per cent of every fifth one with beam 4."""
    imported = read(data_folder / "ct2_aren" / "aren-transliteration")
    lines = (data_folder / "ar2en" / "ar2en-test.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines]
    for beam, chosen, expected in ((1, pairs, 22.1), (4, pairs[::5], 24.5)):
        texts = [t.text for t in translate(imported, [source for source, _ in chosen], beam_size=beam)]
        assert exact_match(texts, [target for _, target in chosen]) == pytest.approx(expected, abs=0.05)
