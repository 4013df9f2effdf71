"""Writes data/tokenizers.json: files of Hugging Face's `tokenizers` with the ids that the library gives for TEXTS, and
what the ids of 1,500 more texts come down to.

`python -m tests.checkpoints.make_tokenizers` from the root of the repository, in an environment with `tokenizers`. The
files are what `transformers` makes of a SentencePiece model (its SpmConverter). The compiled normalisation rules, which
are the same in each and large, are left out: `read` puts them back.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.checkpoints.tokenizer_fixture import LINES, TEXTS, trained, varied_texts
from tfexport.checkpoints.tokenizers.sentencepiece_model import parse_model

FILE = Path(__file__).parent / "data" / "tokenizers.json"
RULES = "the rules of nmt_nfkc"


def read() -> dict[str, dict[str, Any]]:
    """name -> {"tokenizer": content of a tokenizer.json, "ids": those of TEXTS, "digests": of ids of varied_texts}"""
    rules = base64.b64encode(parse_model(trained("unigram")).normalizer_spec.precompiled_charsmap).decode()
    cases = json.loads(FILE.read_text(encoding="utf-8").replace(RULES, rules))["cases"]
    return dict(cases)


def digest(ids: Sequence[int]) -> str:
    """Four letters that other ids hardly have."""
    return f"{zlib.crc32(json.dumps(ids).encode()) & 0xFFFF:04x}"


def _byte_level() -> dict[str, Any]:
    """As BART's and GPT-2's."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer(add_prefix_space=False)
    tokenizer.train_from_iterator(LINES, vocab_size=290, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    return dict(json.loads(tokenizer.to_str()))


def _tokenizers() -> dict[str, Any]:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import BPE, Unigram

    unigram = parse_model(trained("unigram"))
    precompiled = normalizers.Precompiled(unigram.normalizer_spec.precompiled_charsmap)
    scores = [(p.piece, p.score) for p in unigram.pieces]
    mark = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    special = [AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")]

    def finished(tokenizer: Any, added: list[Any]) -> Any:
        tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
        tokenizer.add_tokens(added)
        return tokenizer

    found = {}
    t5 = Tokenizer(Unigram(scores, unk_id=0, byte_fallback=False))
    t5.normalizer = precompiled
    t5.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), mark])
    extra = [AddedToken(f"<extra_id_{i}>", special=True, normalized=False) for i in range(3)]
    found["unigram, white space split (T5)"] = finished(t5, [*special, *extra])
    newer = Tokenizer(Unigram(scores, unk_id=0, byte_fallback=False))
    newer.normalizer = normalizers.Sequence(
        [normalizers.Strip(left=False, right=True), precompiled, normalizers.Replace(Regex(" {2,}"), "▁")]
    )
    newer.pre_tokenizer = mark
    found["unigram, runs replaced"] = finished(newer, special)
    shifted = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *scores[3:]]
    xlm = Tokenizer(Unigram(shifted, unk_id=3, byte_fallback=False))
    xlm.normalizer = precompiled
    xlm.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), mark])
    found["unigram, shifted ids (XLM-R, mBART)"] = finished(
        xlm, [*special, AddedToken("<pad>", special=True), AddedToken("en_XX", special=True)]
    )
    for byte_fallback in (False, True):
        bpe = parse_model(trained("bpe", byte_fallback=byte_fallback))
        vocabulary = {p.piece: i for i, p in enumerate(bpe.pieces)}
        score = {p.piece: p.score for p in bpe.pieces}
        merges = [
            (piece[:i], piece[i:])
            for piece in sorted(score, key=lambda p: -score[p])
            for i in range(1, len(piece))
            if piece[:i] in vocabulary and piece[i:] in vocabulary and vocabulary[piece] > 2
        ]
        model = BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback)
        tokenizer = Tokenizer(model)
        tokenizer.normalizer = newer.normalizer
        tokenizer.pre_tokenizer = mark
        found["bpe, byte fallback" if byte_fallback else "bpe (NLLB)"] = finished(tokenizer, special)
    return found


def main() -> None:
    import tokenizers

    rules = base64.b64encode(parse_model(trained("unigram")).normalizer_spec.precompiled_charsmap).decode()
    cases = {
        name: {
            "tokenizer": json.loads(tokenizer.to_str()),
            "ids": [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS],
            "digests": "".join(digest(tokenizer.encode(text, add_special_tokens=False).ids) for text in varied_texts()),
        }
        for name, tokenizer in _tokenizers().items()
    }
    values = {"tokenizers": tokenizers.__version__, "cases": cases, "byte level": _byte_level()}
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    FILE.write_text(text.replace(rules, RULES) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
