"""Inputs to run a model on: of a text, or, when nobody gave any, made from the vocabulary, always the same."""

from __future__ import annotations

import numpy as np

from tfexport_runtime.bundle import Bundle
from tfexport_runtime.translation import Vocabularies
from tfexport_train.config import EncoderDecoderConfig


def random_sources(config: EncoderDecoderConfig, batch: int, longest: int, seed: int) -> list[list[int]]:
    """Ragged source ids; the first is `longest` long, the others are shorter."""
    generator = np.random.default_rng(seed)
    lengths = [longest, *generator.integers(1, longest + 1, batch - 1).tolist()]
    ordinary = _ordinary_ids(config.source_vocab_size, {config.pad_id, config.start_id, config.eos_id})
    return [generator.choice(ordinary, length).tolist() for length in lengths]


def sample_texts(bundle: Bundle, seed: int, count: int = 12, longest: int = 30) -> list[str]:
    """Texts of random pieces, from one to `longest` of them, with an empty one in the middle."""
    generator = np.random.default_rng(seed)
    source, tokenizer = bundle.manifest.source, bundle.source_tokenizer()
    ordinary = _ordinary_ids(tokenizer.size, {source.pad_id, source.start_id, source.eos_id, source.unk_id})
    room = bundle.manifest.model.max_source_length // 2
    lengths = generator.integers(1, max(2, min(longest, room)), count)
    texts = [tokenizer.decode(generator.choice(ordinary, length).tolist()) for length in lengths]
    texts[count // 2] = ""
    return [" ".join(text.split()) for text in texts]


def encoder_ids(text: str, vocabularies: Vocabularies) -> tuple[int, ...]:
    """As the encoder reads it, cut to what it takes; empty for a text without tokens."""
    ids = vocabularies.source.encode(text)
    room = vocabularies.max_source_length - len(vocabularies.before) - len(vocabularies.after)
    return (*vocabularies.before, *ids[:room], *vocabularies.after) if ids else ()


def _ordinary_ids(size: int, special: set[int]) -> list[int]:
    return [i for i in range(size) if i not in special] or list(range(size))
