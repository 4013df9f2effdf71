from __future__ import annotations

import pytest

from tfexport_runtime.tokenizer import Tokenizer
from tfexport_train.errors import ConfigError
from tfexport_train.settings import TokenizerSettings
from tfexport_train.tokenization import EOS_ID, PAD_ID, START_ID, UNK_ID, train_tokenizers

PAIRS = [(f"the {a} dog sees {b} cats", f"der {a} hund sieht {b} katzen") for a in "abcdefgh" for b in "uvwxyz"]


def trained(**settings: object) -> tuple[Tokenizer, Tokenizer]:
    source, target = train_tokenizers(PAIRS, TokenizerSettings(**settings))  # type: ignore[arg-type]
    return source.tokenizer(UNK_ID), target.tokenizer(UNK_ID)


@pytest.mark.parametrize("model_type", ["bpe", "unigram", "char", "word"])
def test_special_ids_are_the_same_for_every_model_type(model_type: str) -> None:
    size = {"bpe": 310, "unigram": 285, "char": 24, "word": 24}[model_type]
    tokenizer, _ = trained(model_type=model_type, vocab_size=size)
    assert tokenizer.tokens([PAD_ID, START_ID, EOS_ID, UNK_ID]) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert tokenizer.decode(tokenizer.encode("the a dog")) == "the a dog"
    assert not {PAD_ID, START_ID, EOS_ID} & set(tokenizer.encode("<pad> <s> </s>"))


def test_byte_fallback_keeps_unknown_characters() -> None:
    tokenizer, _ = trained(vocab_size=320)
    assert tokenizer.decode(tokenizer.encode("dog ☃ 犬")) == "dog ☃ 犬"
    without, _ = trained(vocab_size=64, byte_fallback=False)
    assert UNK_ID in without.encode("☃")


def test_shared_is_one_model_and_separate_are_two() -> None:
    source, target = train_tokenizers(PAIRS, TokenizerSettings(vocab_size=320))
    assert source is target
    source, target = train_tokenizers(
        PAIRS, TokenizerSettings(vocab_size=310, shared=False, target_model_type="char", target_vocab_size=30)
    )
    assert source.tokenizer(UNK_ID).size == 310
    assert target.tokenizer(UNK_ID).size <= 30
    assert len(target.tokenizer(UNK_ID).encode("katzen")) == 7  # one piece a letter, one for the space before


def test_char_and_word_take_what_the_text_gives() -> None:
    tokenizer, _ = trained(model_type="word", vocab_size=5000)
    assert 20 < tokenizer.size < 40


def test_a_vocabulary_that_the_text_cannot_fill_names_the_largest_possible() -> None:
    with pytest.raises(ConfigError, match=r"vocab_size 5000 .* largest possible is (\d+)") as error:
        trained(vocab_size=5000)
    largest = int(str(error.value).rsplit(" ", 1)[1])
    assert trained(vocab_size=largest)[0].size == largest


def test_a_vocabulary_below_the_alphabet_is_refused() -> None:
    with pytest.raises(ConfigError, match="too small to hold every character"):
        trained(vocab_size=20)


def test_training_is_quiet_and_repeatable(capfd: pytest.CaptureFixture[str]) -> None:
    settings = TokenizerSettings(model_type="unigram", vocab_size=285)
    assert train_tokenizers(PAIRS, settings)[0].model == train_tokenizers(PAIRS, settings)[0].model
    assert capfd.readouterr() == ("", "")
