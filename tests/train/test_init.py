from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.train.tiny_run import tiny_settings
from tfexport_train.checkpoint import load_checkpoint, save_checkpoint
from tfexport_train.init import initialise


def test_with_text_the_tokenizers_are_those_of_training(tmp_path: Path) -> None:
    checkpoint = initialise(tiny_settings(tmp_path))
    assert checkpoint.source.kind == "sentencepiece"
    assert checkpoint.target.tokenizer(3).decode(checkpoint.target.tokenizer(3).encode("rot hund")) == "rot hund"
    save_checkpoint(checkpoint, tmp_path / "ckpt.pt")
    assert load_checkpoint(tmp_path / "ckpt.pt").build_model().config.d_model == 16


def test_without_text_the_shape_gets_made_up_words(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path)
    (tmp_path / "valid.tsv").unlink()
    for without in (settings, replace(settings, data=None)):
        checkpoint = initialise(without)
        config = checkpoint.config
        assert (config.source_vocab_size, config.target_vocab_size) == (40, 40)
        tokenizer = checkpoint.source.tokenizer(config.unk_id)
        assert tokenizer.tokens([config.pad_id, config.start_id, config.eos_id, config.unk_id, 39]) == [
            *("<pad>", "<s>", "</s>", "<unk>"),
            "t39",
        ]
