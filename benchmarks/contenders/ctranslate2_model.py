"""CTranslate2. It has no tokenizer: it gets the tokens that our runtime would make, and gives tokens."""

from __future__ import annotations

import json
import time
from pathlib import Path

import ctranslate2

from benchmarks.work import Job, Output, Work
from tfexport_runtime.tokenizer import load_tokenizer

TOKENS_AT_ONCE = 2048  # of a batch that it makes itself
LONGEST = 256  # tokens of natural output


class CTranslate2Contender:
    """`path` holds the folder `model` and, beside it, what `convert.ctranslate2_model` wrote about the text."""

    def __init__(self, path: Path, threads: int) -> None:
        about = json.loads((path / "text.json").read_text(encoding="utf-8"))
        self.translator = ctranslate2.Translator(
            str(path / "model"),
            device="cpu",
            inter_threads=1,
            intra_threads=threads,
            compute_type=about["compute_type"],
        )
        self.tokenizer = load_tokenizer(about["kind"], (path / "tokenizer").read_bytes(), about["unk_id"])
        words = json.loads((path / "tokens.json").read_text(encoding="utf-8"))
        self.source_words: list[str] = words["source"]
        self.target_words: list[str] = words["target"]
        self.ids = {word: i for i, word in enumerate(self.target_words)}
        self.before, self.after, self.never = about["before"], about["after"], about["never_generated"]

    def prepare(self, work: Work) -> Job:
        batches = [[self._source(text) for text in batch] for batch in work.batches()]
        return lambda: [output for batch in batches for output in self._translate(batch, work)]

    def step_ends(self, text: str, tokens: int) -> list[float]:
        ends: list[float] = []

        def note(result: object) -> bool:
            ends.append(time.perf_counter())
            return False

        self.translator.translate_batch(
            [self._source(text)], beam_size=1, min_decoding_length=tokens, max_decoding_length=tokens, callback=note
        )
        return ends

    def _source(self, text: str) -> list[str]:
        return [self.source_words[i] for i in (*self.before, *self.tokenizer.encode(text), *self.after)]

    def _translate(self, batch: list[list[str]], work: Work) -> list[Output]:
        own_batches = work.tokens is None and work.batch_size is None
        results = self.translator.translate_batch(
            batch,
            beam_size=work.beam_size,
            min_decoding_length=work.tokens or 1,
            max_decoding_length=work.tokens or LONGEST,
            max_batch_size=TOKENS_AT_ONCE // work.beam_size if own_batches else 0,
            batch_type="tokens" if own_batches else "examples",
            return_scores=True,
            suppress_sequences=[[self.target_words[i]] for i in self.never] if work.exact else None,
        )
        return [self._output(r.hypotheses[0], r.scores[0], work) for r in results]

    def _output(self, words: list[str], score: float, work: Work) -> Output:
        """Its score is divided by the length, `eos` counted where it ended the sentence."""
        length = len(words) if work.tokens is not None else len(words) + 1
        return Output(tuple(self.ids[word] for word in words), score * length)


def load(path: Path, threads: int) -> CTranslate2Contender:
    return CTranslate2Contender(path, threads)
