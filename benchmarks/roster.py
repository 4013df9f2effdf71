"""Who is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PRECISIONS = ("fp32", "int8", "int4")
CALIBRATED = "tfexport calibrated int8"  # activations in fixed steps

# Without these its threads sleep between operators, which made it 2 to 3 times slower on small machines.
ACTIVE_WAITING = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "1000000"}


@dataclass(frozen=True)
class Entry:
    """One contender."""

    name: str
    module: str  # of benchmarks.contenders; "" for a program that is only started
    material: str  # what it loads, a key of benchmarks.materials
    settings: str  # for people
    is_peer: bool = True  # runs where the peers are installed
    is_exact: bool = True  # float32: must give our tokens
    environment: Mapping[str, str] = field(default_factory=dict)


def _ours(precision: str) -> Entry:
    settings = "text in, text out; the runtime's defaults; early_stopping for natural lengths, as the peers stop"
    return Entry(f"tfexport {precision}", "bundle", f"bundle-{precision}", settings, False, precision == "fp32")


def _calibrated(name: str) -> Entry:
    settings = "as tfexport int8; activations rounded in fixed steps, found on other texts"
    return Entry(name, "bundle", "bundle-int8-calibrated", settings, is_peer=False, is_exact=False)


def _ctranslate2(compute_type: str) -> Entry:
    settings = "tokens in, tokens out; " + " ".join(f"{k}={v}" for k, v in ACTIVE_WAITING.items())
    name, material = f"CTranslate2 {compute_type}", f"ctranslate2-{compute_type}"
    return Entry(
        name, "ctranslate2_model", material, settings, is_exact=compute_type == "float32", environment=ACTIVE_WAITING
    )


ENTRIES = (
    *(_ours(precision) for precision in PRECISIONS),
    _calibrated(CALIBRATED),
    _ctranslate2("int8"),
    _ctranslate2("float32"),
    Entry(
        "Optimum fp32",
        "optimum_model",
        "optimum",
        "ids in, ids out; ORTModelForSeq2SeqLM.generate, merged decoder, cache",
    ),
    Entry("transformers fp32", "hugging_face", "checkpoint", "ids in, ids out; generate with its cache, eager, sdpa"),
    Entry(
        "PyTorch, cached",
        "pytorch_cached",
        "checkpoint",
        "text in, text out; this project's model and search in PyTorch",
        is_peer=False,
    ),
    Entry(
        "PyTorch, recomputing",
        "recompute_loop",
        "checkpoint",
        "ids in, ids out; the tutorials' greedy loop: the decoder over the whole prefix for each token",
        is_peer=False,
    ),
)
SLIMT = Entry(
    "slimt int8", "slimt_model", "slimt", "text in, text out; one worker, the model's lexical shortlist", is_exact=False
)
SLIMT_WHOLE = Entry(
    "slimt int8, all words",
    "slimt_model",
    "slimt_model-whole",
    "as slimt int8, with a shortlist that holds the whole vocabulary",
    is_exact=False,
)
SMALL = Entry(
    "tfexport int8, small", "bundle", "bundle-int8", "text in, text out; no shortlist", is_peer=False, is_exact=False
)
SMALL_CALIBRATED = _calibrated(f"{CALIBRATED}, small")
CPP_COMMAND = Entry("tfexport int8, C++", "", "bundle-int8", "the command tfexport-cli", is_peer=False, is_exact=False)
BY_NAME = {entry.name: entry for entry in (*ENTRIES, SLIMT, SLIMT_WHOLE, SMALL, SMALL_CALIBRATED, CPP_COMMAND)}
OURS_EXACT = "tfexport fp32"
