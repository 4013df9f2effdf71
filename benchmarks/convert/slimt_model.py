"""A model of slimt whose shortlist holds the whole vocabulary: slimt without a shortlist, which it cannot do by itself.

usage: python -m benchmarks.convert.slimt_model MODEL_FOLDER TARGET_FOLDER
"""

from __future__ import annotations

import shutil
import struct
import sys
from pathlib import Path

_HEADER = "<6Q"  # magic, checksum, words that are always in, best of each source word, offsets, entries
_MASK = 2**64 - 1


def with_whole_vocabulary(shortlist: bytes) -> bytes:
    """The file `lex.*.bin` with all words always in. The checksum is over everything behind it."""
    magic, _, _, best, offsets, entries = struct.unpack_from(_HEADER, shortlist)
    words = offsets - 1  # each word's list ends where the next begins
    content = struct.pack("<4Q", words, best, offsets, entries) + shortlist[struct.calcsize(_HEADER) :]
    return struct.pack("<2Q", magic, _checksum(content)) + content


def _checksum(content: bytes) -> int:
    """As marian-nmt's `util::hashMem` over 64-bit words."""
    total = 0
    for (word,) in struct.iter_unpack("<Q", content):
        total ^= (word + 0x9E3779B9 + (total << 6 & _MASK) + (total >> 2)) & _MASK
    return total


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.mkdir(parents=True)
    for file in source.iterdir():
        if file.match("lex.*.bin"):
            (target / file.name).write_bytes(with_whole_vocabulary(file.read_bytes()))
        elif file.is_file():
            shutil.copy(file, target)


if __name__ == "__main__":
    main()
