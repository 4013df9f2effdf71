"""Text to ids and back."""

from __future__ import annotations

import io

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from tfexport_runtime.errors import BundleError
from tfexport_runtime.tokenizer import WHITE_SPACE, SentencePieceTokenizer, Tokenizer, load_tokenizer

TEXT = ["Hello world, a small test.", "The quick brown fox jumps over it.", "Der Hund läuft über die Straße."]
UNK = 3
BLANK = ["", " ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", "\u200b", " \u200b ", "\ufeff", "\t \u200b\n"]
# Letters and signs; control characters, which normalisation drops, are another matter.
PRINTABLE = st.characters(max_codepoint=0x24F, exclude_categories=["Cc", "Cf"]) | st.sampled_from("ﬁ㎏Ｆ東京😀\u3000")
WORDS = b"<pad>\n<s>\n</s>\n<unk>\nHallo\nWelt\n"
CHARACTERS = "<pad>\n<s>\n</s>\n<unk>\na\nb\n \né\n".encode()


def trained(
    rule: str = "nmt_nfkc", model_type: str = "bpe", vocab_size: int = 340, byte_fallback: bool = True
) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 10),
        model_writer=model,
        model_type=model_type,
        vocab_size=vocab_size,
        byte_fallback=byte_fallback,
        normalization_rule_name=rule,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=UNK,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def model() -> bytes:
    return trained()


@pytest.fixture(scope="module")
def tokenizer(model: bytes) -> Tokenizer:
    return load_tokenizer("sentencepiece", model, UNK)


@pytest.fixture(scope="module")
def verbatim() -> Tokenizer:
    """A model that normalises nothing."""
    return load_tokenizer("sentencepiece", trained(rule="identity"), UNK)


@pytest.mark.parametrize("text", BLANK)
def test_blank_text_has_no_tokens(text: str, tokenizer: Tokenizer, verbatim: Tokenizer) -> None:
    lists = [load_tokenizer("words", WORDS, UNK), load_tokenizer("characters", CHARACTERS, UNK)]
    for each in (tokenizer, verbatim, *lists):
        assert each.encode(text) == []


def test_white_space_covers_what_unicode_calls_so() -> None:
    # Python also counts the separators U+001C to U+001F, which are not White_Space in Unicode.
    python = {chr(i) for i in range(0x110000) if chr(i).isspace()} - set("\x1c\x1d\x1e\x1f")
    assert set(WHITE_SPACE) == python | {"\u200b", "\ufeff"}


def test_sentencepiece_ids_are_those_of_the_library(model: bytes, tokenizer: Tokenizer) -> None:
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    for text in [*TEXT, "ﬁnally  two spaces", " leading", "Ｆｕｌｌ", "e\u0301", "\ufe30"]:
        assert tokenizer.encode(text) == library.encode(text)
        assert tokenizer.tokens(tokenizer.encode(text)) == library.encode(text, out_type=str)
    assert tokenizer.size == library.get_piece_size()


@pytest.mark.parametrize("text", ["😀", "Hello 😀!", "東京 タワー", "日本", "👩‍👩‍👧", "مرحبا"])
def test_byte_fallback_restores_unknown_characters(text: str, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(text)
    assert UNK not in ids
    assert tokenizer.decode(ids) == text


def test_byte_fallback_restores_a_newline_that_is_not_normalised(verbatim: Tokenizer) -> None:
    assert "<0x0A>" in verbatim.tokens(verbatim.encode("a\nb"))
    assert verbatim.decode(verbatim.encode("a\nb\tc")) == "a\nb\tc"


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_cut_byte_run_decodes_to_replacement_characters(kept: int, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("Hello 😀")
    start = len(ids) - 4  # the emoji has four bytes
    decoded = tokenizer.decode(ids[: start + kept])
    assert decoded.startswith("Hello ")
    assert set(decoded.removeprefix("Hello ")) == {"\ufffd"}


def test_control_tokens_have_no_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("Hello")
    assert tokenizer.decode([1, *ids, 2, 0]) == "Hello"


def test_control_tokens_written_in_the_text_stay_text(tokenizer: Tokenizer) -> None:
    assert not {0, 1, 2} & set(tokenizer.encode("a </s> b <pad> <s>"))


def test_unknown_characters_without_byte_fallback_become_unk() -> None:
    plain = load_tokenizer("sentencepiece", trained(model_type="char", vocab_size=40, byte_fallback=False), UNK)
    assert plain.encode("a 東京 b").count(UNK) == 1
    assert plain.tokens([UNK]) == ["<unk>"]


def test_words_are_parted_by_any_white_space() -> None:
    words = load_tokenizer("words", WORDS, UNK)
    assert words.encode(" Hallo\u3000\tWelt\u200bHallo\n") == [4, 5, 4]
    assert words.encode("Hallo\x1fWelt") == [UNK]
    assert words.encode("hallo Mond") == [UNK, UNK]
    assert words.decode([4, 5]) == "Hallo Welt"
    assert words.tokens([UNK, 5]) == ["<unk>", "Welt"]
    assert words.size == 6


def test_characters_keep_inner_spaces() -> None:
    characters = load_tokenizer("characters", CHARACTERS, UNK)
    assert characters.encode(" ab é ") == [4, 5, 6, 7]
    assert characters.encode("ax") == [4, UNK]
    assert characters.decode([4, 6, 7]) == "a é"


def test_token_list_may_end_without_a_newline() -> None:
    assert load_tokenizer("words", WORDS.removesuffix(b"\n"), UNK).size == 6


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"a\n\xff\n", "not UTF-8"), (b"a\nb\na\n", "twice"), (b"", "empty"), (b"\n", "empty")],
)
def test_damaged_token_list_is_refused(data: bytes, message: str) -> None:
    for kind in ("words", "characters"):
        with pytest.raises(BundleError, match=message):
            load_tokenizer(kind, data, UNK)


@pytest.mark.parametrize("data", [b"", b"not a model", b"\x00" * 64, bytes(range(256))])
def test_bytes_of_something_else_are_not_a_sentencepiece_model(data: bytes) -> None:
    with pytest.raises(BundleError, match="not a SentencePiece model"):
        load_tokenizer("sentencepiece", data, UNK)


def test_cut_sentencepiece_model_is_refused(model: bytes) -> None:
    for kept in (1, 10, 1000, len(model) // 2, len(model) - 1):
        with pytest.raises(BundleError, match="not a SentencePiece model"):
            load_tokenizer("sentencepiece", model[:kept], UNK)


def test_piece_that_is_not_utf8_is_refused(model: bytes) -> None:
    damaged = model.replace("ß".encode(), b"\xc3\xc3")
    assert damaged != model
    with pytest.raises(BundleError, match="not a SentencePiece model"):
        load_tokenizer("sentencepiece", damaged, UNK)


def test_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(BundleError, match="sentencepiece, words, characters"):
        load_tokenizer("morse", b"", UNK)


def test_errors_are_one_line(model: bytes) -> None:
    with pytest.raises(BundleError) as caught:
        load_tokenizer("sentencepiece", model[:1000], UNK)
    assert "\n" not in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_text_survives_a_model_that_normalises_nothing(verbatim: Tokenizer, text: str) -> None:
    # The model joins runs of spaces and drops those at the ends; the sign ▁ stands for a space in it.
    expected = " ".join(part for part in text.replace("▁", " ").split(" ") if part)
    if text.strip(WHITE_SPACE):
        assert verbatim.decode(verbatim.encode(text)) == expected


@settings(max_examples=200, deadline=None)
@given(st.text(PRINTABLE, max_size=40))
def test_normalised_text_is_stable(tokenizer: Tokenizer, text: str) -> None:
    """What was decoded once encodes and decodes to itself."""
    once = tokenizer.decode(tokenizer.encode(text))
    assert tokenizer.decode(tokenizer.encode(once)) == once


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 339), max_size=20))
def test_any_ids_decode_to_valid_text(tokenizer: Tokenizer, ids: list[int]) -> None:
    tokenizer.decode(ids).encode("utf-8")
    assert len(tokenizer.tokens(ids)) == len(ids)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from("ab é"), max_size=20).map("".join))
def test_known_characters_survive(text: str) -> None:
    characters = load_tokenizer("characters", CHARACTERS, UNK)
    assert characters.decode(characters.encode(text)) == text.strip()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_model_never_fails_in_another_way(model: bytes, data: st.DataObject) -> None:
    damaged = bytearray(model)
    # The charsmap, most of the file, is checked as a whole; the pieces are the interesting part.
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, 5000))] = data.draw(st.integers(0, 255))
    try:
        loaded = SentencePieceTokenizer(bytes(damaged))
    except BundleError:
        return
    loaded.decode(loaded.encode("Hello wörld 😀")).encode("utf-8")
