"""How fast this machine reads memory, and so how fast a step at batch 1 could be: each weight is read once a token."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

from tfexport_train.config import EncoderDecoderConfig

MEGABYTES = 256  # a thread; far more than any cache
REPEATS = 7
BYTES_A_WEIGHT = {
    "fp32": 4.0,
    "float32": 4.0,
    "int8": 1.0,
    "int4": 0.5 + 4 / 32,
}  # int4: a float32 scale for 32 weights


def read_bandwidth(threads: int) -> float:
    """Bytes a second that numpy reads with so many threads: the best of several reductions and runs."""
    arrays = [np.ones(MEGABYTES * 2**20 // 4, np.float32) for _ in range(threads)]
    reductions: list[Callable[[np.ndarray], object]] = [
        np.max,
        np.add.reduce,
        lambda a: np.add.reduce(a.view(np.int64)),
    ]
    return max(_bandwidth(reduce, arrays) for reduce in reductions for _ in range(REPEATS))


def _bandwidth(reduce: Callable[[np.ndarray], object], arrays: list[np.ndarray]) -> float:
    threads = [threading.Thread(target=reduce, args=(array,)) for array in arrays[1:]]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    reduce(arrays[0])
    for thread in threads:
        thread.join()
    return sum(array.nbytes for array in arrays) / (time.perf_counter() - start)


def weights_of_a_step(config: EncoderDecoderConfig) -> int:
    """Those of the decoder's products; cross keys and values are made once a sentence."""
    inner = config.num_heads * config.head_size
    attention = 4 * config.d_model * inner + 2 * config.d_model * inner
    feed_forward = (3 if config.activation == "swiglu" else 2) * config.d_model * config.d_ff
    return config.num_decoder_layers * (attention + feed_forward) + config.d_model * config.target_vocab_size
