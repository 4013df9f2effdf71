"""The counter-based generator behind sampling: the same numbers in every language and in every batch.

Philox4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". See SPEC.md, "Sampling".
"""

from __future__ import annotations

from collections.abc import Sequence

_MASK = 0xFFFFFFFF


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Ten rounds; all words are 32 bits."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, step: int, sample: int, stream: int) -> float:
    """A number in [0, 1) with 24 bits; seed and stream have 64 bits, step and sample 32."""
    counter = (step, sample, stream & _MASK, stream >> 32)
    return (philox4x32(counter, (seed & _MASK, seed >> 32))[0] >> 8) * 2.0**-24


def fnv1a_64(ids: Sequence[int]) -> int:
    """FNV-1a over the ids, each as four bytes, the lowest first: what tells one sentence's numbers from another's."""
    value = 0xCBF29CE484222325
    for byte in b"".join(i.to_bytes(4, "little") for i in ids):
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value
