"""`python -m tfexport.cold_start BUNDLE`: what a fresh process needs to load a bundle and translate one line of stdin.

A process of its own, because peak memory and the first import cannot be measured twice in one. Prints JSON.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class ColdStart:
    """Seconds from the start of Python's work; memory in bytes."""

    import_seconds: float
    load_seconds: float  # opening the bundle, hashes checked
    first_translation_seconds: float
    peak_memory: int | None  # resident; None where the system does not tell


def measure(bundle: str, threads: int | None, text: str) -> ColdStart:
    start = time.perf_counter()
    import onnxruntime  # noqa: F401  imported here so that its time is not part of loading

    from tfexport.formats.registry import open_any
    from tfexport_runtime.session import SessionOptions
    from tfexport_runtime.translator import Translator

    imported = time.perf_counter()
    translator = Translator(bundle, SessionOptions(threads=threads), engine=open_any)
    loaded = time.perf_counter()
    translator.translate([text])
    done = time.perf_counter()
    return ColdStart(imported - start, loaded - imported, done - loaded, peak_memory())


def peak_memory() -> int | None:
    """Of this process so far, in bytes."""
    with suppress(OSError, StopIteration), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))
    try:
        import resource  # not on Windows. On Linux its figure would include the parent process
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> int:
    bundle, threads = sys.argv[1], int(sys.argv[2])
    result = measure(bundle, threads or None, sys.stdin.buffer.readline().decode("utf-8").rstrip("\n"))
    sys.stdout.write(json.dumps(asdict(result)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
