"""MODEL THREADS TOKENS COMPUTE_TYPE: as bundle_script, with ready tokens on stdin."""

from __future__ import annotations

import sys
import time

start = time.perf_counter()

import ctranslate2  # noqa: E402

imported = time.perf_counter()
translator = ctranslate2.Translator(
    sys.argv[1], device="cpu", inter_threads=1, intra_threads=int(sys.argv[2]), compute_type=sys.argv[4]
)
loaded = time.perf_counter()
tokens = int(sys.argv[3])
source = sys.stdin.readline().split()
found = translator.translate_batch([source], beam_size=1, min_decoding_length=tokens, max_decoding_length=tokens)
sys.stdout.write(" ".join(found[0].hypotheses[0]) + "\n")
sys.stdout.flush()

import json  # noqa: E402

with open("/proc/self/status", encoding="ascii", errors="replace") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
sys.stdout.write(json.dumps({"import": imported - start, "load": loaded - imported, "peak": peak}) + "\n")
