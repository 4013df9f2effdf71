"""The counter-based generator behind sampling: the same numbers in every language and in every batch.

Philox4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". See SPEC.md, "Sampling".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Block = tuple[int, int, int, int]

_MASK = 0xFFFFFFFF


def philox4x32(counter: Block, key: tuple[int, int]) -> Block:
    """Ten rounds; all words are 32 bits."""
    c0, c1, c2, c3 = _rounds(*counter, *key)
    return c0, c1, c2, c3


def draw_block(seed: int, step: int, sample: int, stream: int) -> Block:
    """What tells the draws of a step from all others; seed and stream have 64 bits, step and sample 32."""
    return philox4x32((step, sample, stream & _MASK, stream >> 32), (seed & _MASK, seed >> 32))


def exponential_times(block: Block, count: int) -> npt.NDArray[np.float64]:
    """For each id below count, a time above 0 of the exponential distribution of rate 1."""
    a0, a1, a2, a3 = block
    zero = np.zeros(-(-count // 4), np.uint64)
    words = _rounds(np.arange(len(zero), dtype=np.uint64), zero, zero + np.uint64(a2), zero + np.uint64(a3), a0, a1)
    times: npt.NDArray[np.float64] = -np.log((np.stack(words, axis=1).reshape(-1)[:count] + 0.5) * 2.0**-32)
    return times


def _rounds(c0: Any, c1: Any, c2: Any, c3: Any, k0: int, k1: int) -> tuple[Any, Any, Any, Any]:
    """Words in integers, or in arrays of uint64."""
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return c0, c1, c2, c3


def fnv1a_64(ids: Sequence[int]) -> int:
    """FNV-1a over the ids, each as four bytes, the lowest first: what tells one sentence's numbers from another's."""
    value = 0xCBF29CE484222325
    for byte in b"".join(i.to_bytes(4, "little") for i in ids):
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value
