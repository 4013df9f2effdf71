"""BUNDLE THREADS TOKENS: loads, translates the line on stdin, prints the translation and then what it took as JSON."""

from __future__ import annotations

import sys
import time

start = time.perf_counter()

from tfexport_runtime.session import SessionOptions  # noqa: E402
from tfexport_runtime.translator import Translator  # noqa: E402

imported = time.perf_counter()
translator = Translator(sys.argv[1], SessionOptions(threads=int(sys.argv[2])))
loaded = time.perf_counter()
tokens = int(sys.argv[3])
options = translator.options({"beam_size": 1, "min_length": tokens, "max_length": tokens, "max_length_ratio": None})
text = translator.translate([sys.stdin.readline().rstrip("\n")], options)[0].text
sys.stdout.write(text + "\n")
sys.stdout.flush()

import json  # noqa: E402

with open("/proc/self/status", encoding="ascii", errors="replace") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
sys.stdout.write(json.dumps({"import": imported - start, "load": loaded - imported, "peak": peak}) + "\n")
