"""SentencePiece models of every kind, small, and what Python's SentencePiece makes of many odd strings."""

from __future__ import annotations

import io
import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import sentencepiece

from tfexport_runtime.tokenizer import load_tokenizer

ROOT = Path(__file__).resolve().parents[2]

SENTENCES = (
    "The quick brown fox jumps over the lazy dog; 1,234.56 km/h at 7:30 p.m.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Portez ce vieux whisky au juge blond qui fume, où ça ? À Noël, l'œuf naît.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "いろはにほへと ちりぬるを、私は東京タワーへ行きました。",
    "敏捷的棕色狐狸跳过了懒狗，天气很好。",
    "다람쥐 헌 쳇바퀴에 타고파",
    "نص حكيم له سر قاطع وذو شأن عظيم",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "Vào một ngày đẹp trời, những con chim hót líu lo.",
)

ODD = (
    "",
    " ",
    "  two  spaces  ",
    "\t\ttab\nline\r\nend",
    "a\u00a0b\u2003c\u3000d",
    "\u200b\ufeff",
    "x\u200by",
    "a\x00b\x01c\x7f",
    "ＦＵＬＬ　ｗｉｄｔｈ １２３",
    "ｶﾞｷﾞｸﾞ",
    "①②③ ㍿ ㎏ ﷺ",
    "ﬁnancial ﬂow",
    "e\u0301 a\u0308 o\u0302\u0323",
    "\u0301start",
    "각 ᄀ",
    "👍🏽👩‍👩‍👧‍👦🇩🇪🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "😀😃😄 text 🎉",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠀀𠮷",
    "<s> </s> <unk> <pad>",
    "<0x41><0xFF>",
    "▁▁under▁line",
    "▁",
    "<sep>",
    "a<sep>b <sep> <sep><sep>",
    "WWWWWWWWWWWW wwww www",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "1234567890 0.1e-5",
    "http://example.org/a?b=c&d=%20",
    "\u202eright to left\u202c",
    "\ufffd\ufffe\uffff",
    "\U0010ffff\ue000",
    "İıŞğ ß ẞ ſ",
    "한국어 조선말",
    "\u2028\u2029",
    "~!@#$%^&*()_+`-=[]\\{}|;':\",./<>?",
)

KINDS: dict[str, dict[str, Any]] = {
    "bpe": {"model_type": "bpe", "vocab_size": 600, "byte_fallback": True},
    "bpe_symbols": {
        "model_type": "bpe",
        "vocab_size": 340,
        "normalization_rule_name": "nfkc",
        "user_defined_symbols": ["<sep>", "www", "🎉", "é "],
        "control_symbols": ["<pad>"],
    },
    "bpe_plain": {
        "model_type": "bpe",
        "vocab_size": 340,
        "normalization_rule_name": "identity",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
    },
    "bpe_suffix": {
        "model_type": "bpe",
        "vocab_size": 340,
        "treat_whitespace_as_suffix": True,
        "normalization_rule_name": "nfkc_cf",
    },
    "unigram": {"model_type": "unigram", "vocab_size": 600, "byte_fallback": True},
    "unigram_unknown": {"model_type": "unigram", "vocab_size": 340, "user_defined_symbols": ["<sep>"]},
    "unigram_plain": {"model_type": "unigram", "vocab_size": 340, "normalization_rule_name": "identity"},
    "char": {"model_type": "char", "vocab_size": 200},
    "word": {"model_type": "word", "vocab_size": 100},
}


def write_tokenizers(folder: Path) -> None:
    """For each kind NAME.spm, and NAME.json with texts, ids, and ids to decode with their text."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = corpus()
    texts = strings(lines)
    for name, settings in KINDS.items():
        model = trained(lines, settings)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        tokenizer = load_tokenizer("sentencepiece", model, 0)
        generator = random.Random(2)
        runs = [[generator.randrange(processor.GetPieceSize()) for _ in range(9)] for _ in range(300)]
        runs += [tokenizer.encode(text) for text in texts[:300]]
        found = {
            "texts": texts,
            "ids": [tokenizer.encode(text) for text in texts],
            "tokens": tokenizer.tokens(range(tokenizer.size)),
            "runs": runs,
            "decoded": [tokenizer.decode(run) for run in runs],
        }
        (folder / f"{name}.spm").write_bytes(model)
        (folder / f"{name}.json").write_text(json.dumps(found), encoding="utf-8")


def corpus() -> list[str]:
    """Text that is always there: the documents of the repository and sentences in many languages."""
    documents = [(ROOT / name).read_text(encoding="utf-8") for name in ("runtime/SPEC.md", "README.md")]
    lines = [line.strip() for document in documents for line in document.splitlines() if line.strip()]
    return [*lines, *(sentence for sentence in SENTENCES for _ in range(3))]


def strings(lines: list[str]) -> list[str]:
    """More than a thousand: written ones, lines, normal forms of them, and random characters."""
    generator = random.Random(1)
    forms = [unicodedata.normalize(form, s) for form in ("NFD", "NFKD", "NFC") for s in SENTENCES]
    blocks = [
        (0x20, 0x7F),
        (0x20, 0x7F),
        (0, 0x250),
        (0x300, 0x370),
        (0x400, 0x500),
        (0x600, 0x700),
        (0x3040, 0x3100),
        (0x4E00, 0x5000),
        (0xAC00, 0xAD00),
        (0xFF00, 0xFFF0),
        (0x1F300, 0x1F650),
        (0x2000, 0x2070),
        (0, 0x30000),
    ]
    drawn = []
    for _ in range(900):
        characters = []
        for _ in range(generator.randrange(1, 24)):
            low, high = generator.choice(blocks)
            code = generator.randrange(low, high)
            characters.append(" " if 0xD800 <= code < 0xE000 or generator.random() < 0.12 else chr(code))
        drawn.append("".join(characters))
    mixed = ["".join(generator.choice(SENTENCES)[: generator.randrange(9)] for _ in range(5)) for _ in range(200)]
    return [*ODD, *SENTENCES, *forms, *lines, *drawn, *mixed]


def trained(lines: list[str], settings: dict[str, Any]) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        character_coverage=0.98,
        **settings,
    )
    return model.getvalue()
