"""Small SentencePiece models, and texts that are cut in every way."""

from __future__ import annotations

import io
import random
from functools import cache

import sentencepiece

LINES = [
    "ein kleiner hund läuft schnell über die grüne wiese und spielt mit dem roten ball am see",
    "the quick brown fox jumps over the lazy dog, and nobody knows why it does so every day.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich: 1234567890 (ja!)",
]
TEXTS = [
    "ein hund und ein ball",
    "the dog läuft über den Deich.",
    "  two   spaces  ",
    "unseen Ωμέγα 東京 ☃ letters",
    "ﬁne ligature, Ｆｕｌｌ ｗｉｄｔｈ, ½ and ™",
    "tab\tand\u00a0hard\u3000space",
    "1234 (5) \u201cquoted\u201d \u2026",
    "</s> <pad> <s> are text",
    "x",
    "café cafe\u0301",
    "zero\u200bwidth",
]


@cache
def trained(kind: str, rule: str = "nmt_nfkc", byte_fallback: bool = False, collapse: bool = True) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_sentences()),
        model_writer=model,
        model_type=kind,
        vocab_size=380 if byte_fallback else 120,
        hard_vocab_limit=False,
        byte_fallback=byte_fallback,
        normalization_rule_name=rule,
        remove_extra_whitespaces=collapse,
        minloglevel=2,
    )
    return model.getvalue()


def _sentences() -> list[str]:
    """The words of LINES in many orders, with endings: enough for pieces that are parts of words."""
    generator, words = random.Random(0), " ".join(LINES).split()
    endings = ["", "", "s", "en", "e", "ly"]
    return [" ".join(generator.choice(words) + generator.choice(endings) for _ in range(8)) for _ in range(150)]


def processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def varied_texts(count: int = 1500) -> list[str]:
    """Of one line each: words with their punctuation, odd spaces, pieces of words, letters of many scripts."""
    generator = random.Random(7)
    return [_WAYS[i % len(_WAYS)](generator) for i in range(count)]


def _words(generator: random.Random) -> str:
    words = " ".join(LINES).split()
    return " ".join(generator.choice(words) + generator.choice(["", "", ",", ".", "s", "!?"]) for _ in range(9))


def _spaced(generator: random.Random) -> str:
    spaces = [" ", "  ", "   ", "\t", "\u00a0", "\u2003", "\u3000", " \u200b"]
    return "".join(word + generator.choice(spaces) for word in ["", *_words(generator).split()])


def _letters(generator: random.Random) -> str:
    return "".join(generator.choice("".join(LINES)) for _ in range(generator.randrange(1, 40)))


def _scripts(generator: random.Random) -> str:
    ranges = [(0x20, 0x7E), (0xA1, 0x24F), (0x370, 0x3FF), (0x400, 0x52F), (0x5D0, 0x5EA), (0x621, 0x64A)]
    ranges += [
        (0x905, 0x939),
        (0x3041, 0x30FE),
        (0x4E00, 0x9FA5),
        (0xAC00, 0xD7A3),
        (0xFF01, 0xFF5E),
        (0x1F600, 0x1F64F),
    ]
    block = generator.choice(ranges)
    return "".join(chr(generator.randint(*generator.choice([block, block, (0x61, 0x7A)]))) for _ in range(15))


def _numbers(generator: random.Random) -> str:
    return " ".join(f"{generator.uniform(-1e4, 1e6):,.{generator.randrange(3)}f}%" for _ in range(4))


_WAYS = (_words, _words, _spaced, _letters, _scripts, _numbers)
