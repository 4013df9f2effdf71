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
