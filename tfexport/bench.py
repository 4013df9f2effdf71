"""How fast and how large a bundle is on this machine, and how it compares with plain PyTorch decoding."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfexport.cold_start import ColdStart
from tfexport.formats.registry import open_any
from tfexport.operator_profile import OperatorTime, profile_step
from tfexport.samples import sample_texts
from tfexport_runtime.errors import InputError, TfexportError
from tfexport_runtime.line_stream import read_lines
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.session import SessionOptions, available_cores
from tfexport_runtime.translator import Translator

if TYPE_CHECKING:  # what measures the bundle alone needs no PyTorch
    from tfexport_train.checkpoint import Checkpoint

BEAM_SIZES = (1, 4)


@dataclass(frozen=True)
class BenchOptions:
    checkpoint: Callable[[], Checkpoint] | None = None  # opens what the bundle was made from: compared with PyTorch
    text: Path | None = None  # source text, one a line; None: random pieces of the vocabulary
    threads: int | None = None  # None: all cores of this process, for every side of a comparison
    sentences: int = 32  # how many are translated one by one, and how many make up the batch
    repeats: int = 5  # of the batch and of the comparison
    forced_tokens: int = 64  # length of the comparison, or the model's limit if that is less
    profile: bool = False  # also which operators a decoding step's time goes to


@dataclass(frozen=True)
class Speed:
    """One way of searching. Times in milliseconds."""

    search: str
    batch: int
    sentence_p50: float
    sentence_p95: float
    token_p50: float
    token_p95: float
    tokens_per_second: float


@dataclass(frozen=True)
class Comparison:
    """The same sentence and number of tokens, runs interleaved. Times in milliseconds."""

    tokens: int
    rows: tuple[ComparedTime, ...]  # the bundle last
    ratio: float  # minimum of the recomputing loop to minimum of the bundle
    same_tokens: bool


@dataclass(frozen=True)
class ComparedTime:
    name: str
    minimum: float
    median: float


@dataclass(frozen=True)
class BenchReport:
    machine: dict[str, Any]
    size: int  # bytes on disk, everything in the bundle
    cold_start: ColdStart
    speeds: tuple[Speed, ...]
    comparison: Comparison | None
    profile: tuple[OperatorTime, ...] | None  # of a greedy step at batch 1

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def bench_bundle(
    path: Path, options: BenchOptions, on_stage: Callable[[str], None] = lambda stage: None
) -> BenchReport:
    """`on_stage` hears what is measured next. Raises TfexportError."""
    threads = options.threads or available_cores()
    on_stage("loading")
    translator = Translator(path, SessionOptions(threads=threads), engine=open_any)
    texts = _texts(translator, options)
    on_stage("cold start in a process of its own")
    cold = _cold_start(path, threads, texts[0])
    speeds = []
    for beam_size in BEAM_SIZES:
        on_stage(f"beam {beam_size}, one by one and as a batch")
        search = replace(translator.default_options, beam_size=beam_size, n_best=1, sampling=False)
        speeds += [_alone(translator, texts, search), _batched(translator, texts, search, options.repeats)]
    comparison = None
    if options.checkpoint is not None:
        on_stage("against PyTorch")
        comparison = _compare(translator, options.checkpoint(), texts[0], threads, options)
    operators = None
    if options.profile:
        on_stage("operators of a step")
        operators = profile_step(path, texts[0], _forced(translator, options), threads)
    return BenchReport(_machine(threads), size_on_disk(path), cold, tuple(speeds), comparison, operators)


def _forced(translator: Translator, options: BenchOptions) -> TranslationOptions:
    """Greedy, exactly as many tokens as wanted, or as the model can give if that is less."""
    tokens = min(options.forced_tokens, translator.bundle.manifest.model.max_target_length - 1)
    return TranslationOptions(min_length=tokens, max_length=tokens, max_length_ratio=None)


def _texts(translator: Translator, options: BenchOptions) -> list[str]:
    """Non-empty source texts, repeated if there are too few."""
    if options.text is not None:
        lines = read_lines(options.text)
    else:
        lines = sample_texts(translator.bundle, seed=0, count=options.sentences + 1)
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InputError(f"{options.text or translator.bundle.origin}: holds no text to translate; give --text")
    return [texts[i % len(texts)] for i in range(options.sentences)]


def _cold_start(path: Path, threads: int, text: str) -> ColdStart:
    command = [sys.executable, "-m", "tfexport.cold_start", str(path), str(threads)]
    done = subprocess.run(command, input=text + "\n", capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise TfexportError(f"the cold start failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    return ColdStart(**json.loads(done.stdout))


def _alone(translator: Translator, texts: Sequence[str], search: TranslationOptions) -> Speed:
    translator.translate(texts[:1], search)
    timed = [_timed(partial(translator.translate, [text], search)) for text in texts]
    tokens = [len(result[0].best.token_scores) for _, result in timed]
    return _speed(search, 1, [seconds for seconds, _ in timed], tokens)


def _batched(translator: Translator, texts: Sequence[str], search: TranslationOptions, repeats: int) -> Speed:
    """Times are those of the whole call, divided by the sentences in it."""
    translator.translate(texts, search)
    timed = [_timed(lambda: translator.translate(texts, search)) for _ in range(repeats)]
    tokens = sum(len(t.best.token_scores) for t in timed[0][1])
    return _speed(search, len(texts), [seconds for seconds, _ in timed], [tokens] * repeats)


def _speed(search: TranslationOptions, batch: int, seconds: Sequence[float], tokens: Sequence[int]) -> Speed:
    """`seconds` and `tokens` of each call. Tokens are those of the best hypothesis, `eos` included."""
    sentence = [1e3 * s / batch for s in seconds]
    token = [1e3 * s / max(t, 1) for s, t in zip(seconds, tokens, strict=True)]
    name = "greedy" if search.beam_size == 1 else f"beam {search.beam_size}"
    per_second = sum(tokens) / sum(seconds)
    return Speed(name, batch, _p50(sentence), _p95(sentence), _p50(token), _p95(token), per_second)


def _compare(
    translator: Translator, checkpoint: Checkpoint, text: str, threads: int, options: BenchOptions
) -> Comparison:
    import torch

    from tfexport.recompute import recompute_greedy
    from tfexport_train.evaluate import TorchTranslator

    forced = _forced(translator, options)
    tokens = forced.min_length
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        in_torch = TorchTranslator.from_checkpoint(checkpoint)
        texts = in_torch.vocabularies
        source = (*texts.before, *texts.source.encode(text), *texts.after)
        contestants: dict[str, Callable[[], list[int]]] = {
            "PyTorch, recomputing the prefix": lambda: recompute_greedy(in_torch.model, source, tokens),
            "PyTorch, with a cache": lambda: list(in_torch.translate([text], forced)[0].best.ids),
            "this bundle": lambda: list(translator.translate([text], forced)[0].best.ids),
        }
        outputs = [run() for run in contestants.values()]
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(options.repeats):
            for name, run in contestants.items():
                time.sleep(0.02)  # lets the other side's threads stop spinning
                times[name].append(1e3 * _timed(run)[0])
    finally:
        torch.set_num_threads(torch_threads)
    rows = tuple(ComparedTime(name, min(t), statistics.median(t)) for name, t in times.items())
    return Comparison(tokens, rows, rows[0].minimum / rows[-1].minimum, all(o == outputs[-1] for o in outputs))


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def _p50(values: Sequence[float]) -> float:
    return statistics.median(values)


def _p95(values: Sequence[float]) -> float:
    """The smallest value that at least 95 % of the values do not exceed."""
    return sorted(values)[max(0, -(-95 * len(values) // 100) - 1)]


def size_on_disk(path: Path) -> int:
    """Bytes of a bundle, manifest included."""
    return sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else path.stat().st_size


def _machine(threads: int) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "processor": _processor(),
        "threads": threads,
        "python": platform.python_version(),
        **{name: version(name) for name in ("tfexport", "numpy")},
        **_first_installed(("onnxruntime", "onnxruntime-gpu")),
    }


def _first_installed(names: Sequence[str]) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    for name in names:
        try:
            return {name: version(name)}
        except PackageNotFoundError:
            continue
    return {}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
