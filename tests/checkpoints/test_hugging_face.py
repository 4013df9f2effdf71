"""Folders that the transformers library wrote, against what the library itself computes with them."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tfexport.checkpoints import Imported, ImportOptions, open_checkpoint
from tfexport.checkpoints.imported import MappingError
from tfexport_runtime.options import TranslationOptions
from tfexport_train.errors import CheckpointError, ConfigError
from tfexport_train.evaluate import TorchTranslator

DATA = Path(__file__).parent / "data" / "hugging_face"
CASES = sorted(folder.name for folder in DATA.iterdir())


@functools.cache
def expected_of(case: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((DATA / case / "expected.json").read_text(encoding="utf-8"))
    return expected


def options_of(case: str) -> ImportOptions:
    expected = expected_of(case)
    return ImportOptions(ids=expected["texts"] is None, **expected["options"])


@functools.cache
def imported(case: str) -> Imported:
    return open_checkpoint(DATA / case, options_of(case))


@functools.cache
def translator_of(case: str) -> TorchTranslator:
    return TorchTranslator.from_checkpoint(imported(case).checkpoint)


def texts_of(case: str) -> list[str]:
    expected = expected_of(case)
    ids = [" ".join(map(str, source[1:-1])) for source in expected["source_ids"]]  # without what is added around it
    texts: list[str] = expected["texts"] or ids
    return texts


@pytest.mark.parametrize("case", CASES)
def test_a_text_has_the_ids_of_the_original_tokenizer(case: str) -> None:
    vocabularies = translator_of(case).vocabularies
    ids = [[*vocabularies.before, *vocabularies.source.encode(t), *vocabularies.after] for t in texts_of(case)]
    assert ids == expected_of(case)["source_ids"]


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_original(case: str) -> None:
    expected, model = expected_of(case), translator_of(case).model
    width = max(map(len, expected["source_ids"]))
    source = torch.tensor([[*s, *[model.config.pad_id] * (width - len(s))] for s in expected["source_ids"]])
    mask = torch.tensor([[i < len(s) for i in range(width)] for s in expected["source_ids"]])
    with torch.inference_mode():
        logits = model.decode(model.encode(source, mask), mask, torch.tensor(expected["decoder_ids"]))
    wanted = load_file(DATA / case / "expected.safetensors")["logits"]
    assert wanted.std() > 0.5  # a model with opinions
    torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("case", CASES)
def test_tokens_are_those_of_the_originals_generation(case: str, search: str) -> None:
    expected, checkpoint = expected_of(case), imported(case).checkpoint
    options = TranslationOptions(n_best=4 if search == "beam" else 1).with_changes(
        {
            **checkpoint.generation,
            **({} if search == "beam" else {"beam_size": 1}),
            "no_repeat_ngram_size": 2,
            "suppress_tokens": expected["generate"]["suppress_tokens"],
            "max_length": expected["generate"]["max_new_tokens"] - len(expected["prefix_ids"]),
            "max_length_ratio": None,
        }
    )
    found = translator_of(case).translate(texts_of(case), options)
    ids = [[list(h.ids) for h in translation.hypotheses] for translation in found]
    assert ids == (expected["beam"] if search == "beam" else [[row] for row in expected["greedy"]])


def test_where_languages_go_is_said() -> None:
    side = imported("nllb-3-1").checkpoint
    assert (len(side.source.prefix_ids), len(side.target.prefix_ids), side.source.add_eos) == (1, 1, True)
    mbart = imported("mbart-2-2").checkpoint
    assert (len(mbart.source.suffix_ids), mbart.target.prefix_ids) == (1, ())
    assert mbart.config.start_id not in (mbart.config.eos_id, mbart.config.pad_id)
    assert any("first in every translation" in note for note in imported("nllb-3-1").notes)


@pytest.mark.parametrize("case", ["m2m100-2-2", "nllb-3-1", "mbart-2-2", "mbart50-3-1"])
def test_a_multilingual_model_wants_to_know_the_languages(case: str) -> None:
    with pytest.raises(CheckpointError, match=r"give --source-language and --target-language, such as \w+, .* more"):
        open_checkpoint(DATA / case, ImportOptions())
    given = {**expected_of(case)["options"], "target_language": "klingon"}
    with pytest.raises(CheckpointError, match=r"no language 'klingon'; there are "):
        open_checkpoint(DATA / case, ImportOptions(**given))


def test_a_bilingual_model_has_no_languages() -> None:
    with pytest.raises(CheckpointError, match="no tokens for languages; leave out --target-language"):
        open_checkpoint(DATA / "t5-2-2", ImportOptions(target_language="fr"))


def test_byte_level_bpe_is_refused_with_the_way_out() -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer that is known; .*--ids"):
        open_checkpoint(DATA / "bart-2-2", ImportOptions())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the first Marian folder, to be changed."""
    return Path(shutil.copytree(DATA / "marian-2-2", tmp_path / "marian"))


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), **values}), encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "umt5"}, r'config.json: model_type="umt5" is not supported; one of bart, '),
        ({"activation_function": "quick_gelu"}, r'activation_function="quick_gelu" is not supported; one of relu, '),
        ({"decoder_ffn_dim": 24}, r"decoder_ffn_dim=24 is not supported; encoder_ffn_dim, 12, is"),
        ({"normalize_before": True}, r"normalize_before=true is not supported; false is"),
        ({"d_model": "16"}, r'd_model must be an integer, not "16"'),
        ({"encoder_layers": None}, r"config.json: encoder_layers is missing"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(folder: Path, values: dict[str, Any], message: str) -> None:
    change(folder / "config.json", **values)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)


def test_a_vocabulary_of_another_size_is_refused_with_both(folder: Path) -> None:
    rows = load_file(folder / "model.safetensors")["model.shared.weight"].shape[0]
    change(folder / "config.json", vocab_size=rows + 3)
    with pytest.raises(MappingError, match=rf"is \[{rows}, 8\], expected \[{rows + 3}, 8\]"):
        open_checkpoint(folder)


def test_parts_of_the_weights_outside_of_the_folder_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    index = {"weight_map": {"model.shared.weight": "../model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"names '../model.safetensors', which is no file of this folder"):
        open_checkpoint(folder)


def test_a_folder_without_weights_says_what_it_lacks(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no weights; expected model.safetensors or pytorch_model.bin"):
        open_checkpoint(folder)


def test_generation_options_keep_their_meaning(folder: Path) -> None:
    change(
        folder / "generation_config.json",
        num_beams=6,
        length_penalty=0.5,
        early_stopping="never",
        min_length=4,
        max_length=30,
        no_repeat_ngram_size=3,
        repetition_penalty=1.2,
        bad_words_ids=[[24], [7], [8, 9]],
        num_beam_groups=2,
        diversity_penalty=0.0,
    )
    found = open_checkpoint(folder)
    assert found.checkpoint.generation == {
        "beam_size": 6,
        "length_penalty": "average",
        "alpha": 0.5,
        "min_length": 3,  # theirs counts the start token
        "max_length": 29,
        "max_length_ratio": None,
        "no_repeat_ngram_size": 3,
        "repetition_penalty": 1.2,
        "suppress_tokens": [7],  # 24 is padding
    }
    assert found.notes == (
        "generation_config.json: num_beam_groups=2 has no counterpart and is left out",
        "generation_config.json: 1 bad_words_ids of several tokens are left out",
    )


def test_facts_that_are_given_lie_over_those_of_the_folder(folder: Path) -> None:
    longer = open_checkpoint(folder, ImportOptions(config={"max_positions": 64})).checkpoint
    assert longer.weights["source_embedding.position_table"].shape == (64, 8)
    with pytest.raises(ConfigError, match=r"unknown max_position .did you mean max_positions"):
        open_checkpoint(folder, ImportOptions(config={"max_position": 64}))
