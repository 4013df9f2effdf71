"""What is translated."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tfexport_runtime.line_stream import read_lines
from tfexport_runtime.tokenizer import Tokenizer


def random_texts(tokenizer: Tokenizer, count: int, tokens: int, seed: int = 0) -> tuple[str, ...]:
    """Texts that the tokenizer makes exactly `tokens` tokens of."""
    generator = np.random.default_rng(seed)
    found: list[str] = []
    while len(found) < count:
        text = tokenizer.decode(generator.integers(4, tokenizer.size, tokens).tolist())
        if len(tokenizer.encode(text)) == tokens:
            found.append(text)
    return tuple(found)


def lines(path: Path, count: int) -> tuple[str, ...]:
    """The first lines that hold something."""
    return tuple([line for line in read_lines(path) if line.strip()][:count])
