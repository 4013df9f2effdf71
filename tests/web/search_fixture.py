"""Random searches over a hashed table of logits, which any language can compute exactly, with the results of Python."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from tests.search.table_model import TableModel
from tfexport_runtime.options import Progress, TranslationOptions, check_options
from tfexport_runtime.random import fnv1a_64, philox4x32
from tfexport_runtime.search import search
from tfexport_runtime.step_model import FloatArray, Request, Target

CASES = 150
MASK = 0xFFFFFFFF
Ids = tuple[int, ...]


def hashed_logits(seed: int, vocab_size: int, holes: bool, source: Ids, history: Ids) -> FloatArray:
    """Multiples of 2^-16 from -4 to 4, exact in float32; with holes, half of them are -inf, but never the last."""
    stream = fnv1a_64([*source, 0xFFFFFF, *history])
    words = [philox4x32((v, 0, stream & MASK, stream >> 32), (seed, 0)) for v in range(vocab_size)]
    logits = np.array([(word[0] >> 13) * 2.0**-16 - 4 for word in words], np.float32)
    if holes:
        logits[[bool(word[1] & 1) and v < vocab_size - 1 for v, word in enumerate(words)]] = -np.inf
    return logits


def search_cases() -> list[dict[str, Any]]:
    generator = random.Random(3)
    return [_case(generator, sampling=i % 4 == 3) for i in range(CASES)]


def _case(generator: random.Random, sampling: bool) -> dict[str, Any]:
    vocab_size = generator.randrange(5, 12)
    holes = generator.random() < 0.3
    never = generator.choice([(0, 1), ()])
    before = tuple(generator.randrange(vocab_size) for _ in range(generator.choice([0, 0, 1, 2])))
    target = Target(vocab_size, 1, 2, never, generator.randrange(7, 13), before)
    seed = generator.randrange(2**32)
    options = _options(generator, vocab_size, sampling)
    check_options(options, target)
    count = generator.randrange(1, 4)
    sources = [tuple(generator.randrange(9) for _ in range(generator.randrange(1, 5))) for _ in range(count)]
    prefixes: list[Ids] = [()] * count
    if generator.random() < 0.4:
        prefixes = [tuple(generator.randrange(vocab_size) for _ in range(generator.randrange(4))) for _ in range(count)]
    cancels = [(0, generator.randrange(5))] if generator.random() < 0.2 else []
    samples = range(options.n_best if sampling else 1)
    requests = [Request(s, p, i, j) for i, (s, p) in enumerate(zip(sources, prefixes, strict=True)) for j in samples]
    seen: list[list[Any]] = []

    def callback(progress: Progress) -> bool:
        steps = sum(call[:2] == [progress.sentence, progress.sample] for call in seen)
        seen.append([progress.sentence, progress.sample, progress.tokens, progress.score])
        return (progress.sentence, steps) in cancels

    model = TableModel(
        lambda source, history: hashed_logits(seed, vocab_size, holes, source, history), vocab_size, target.start_id
    )
    results = search(model, requests, replace(options, callback=callback), target)
    written = {name: value for name, value in asdict(options).items() if name != "callback"}
    return {
        "seed": seed,
        "holes": holes,
        "target": asdict(target),
        "options": {**written, "seed": str(options.seed)},
        "requests": [asdict(request) for request in requests],
        "cancels": cancels,
        "seen": seen,
        "results": [[asdict(hypothesis) for hypothesis in result] for result in results],
    }


def _options(generator: random.Random, vocab_size: int, sampling: bool) -> TranslationOptions:
    choice = generator.choice
    beam_size = 1 if sampling else generator.randrange(1, 7)
    min_length = choice([0, 0, 1, 3])
    return TranslationOptions(
        beam_size=beam_size,
        n_best=generator.randrange(1, 4 if sampling else beam_size + 1),
        length_penalty=choice(["none", "average", "gnmt", "word_reward"]),
        alpha=choice([0.0, 0.6, 1.0, -0.5]),
        length_offset=choice([0, 1]),
        word_reward=choice([-1.0, 0.4, 3.0]),
        early_stopping=choice([True, False]),
        min_length=min_length,
        max_length=choice([None, max(min_length, 5)]),
        max_length_ratio=choice([None, 0.7, 2.0]),
        max_length_extra=generator.randrange(1, 5),
        sampling=sampling,
        temperature=choice([1.0, 0.3, 2.5]),
        top_k=choice([0, 1, 3]),
        top_p=choice([1.0, 0.9, 0.4]),
        seed=choice([0, 1, 2**33 + 5, 2**64 - 1]),
        no_repeat_ngram_size=choice([0, 0, 1, 2]),
        repetition_penalty=choice([1.0, 1.0, 0.7, 1.3]),
        suppress_tokens=choice([(), (3,), (0, 4)]),
        prefix_strength=1.0 if sampling else choice([1.0, 1.0, 0.5]),
    )
