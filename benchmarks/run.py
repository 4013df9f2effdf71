"""One run: every part that was asked for, then the tables, the chart and the files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks import plan, texts
from benchmarks.bandwidth import BYTES_A_WEIGHT, read_bandwidth, weights_of_a_step
from benchmarks.cold.measure import measure_cold
from benchmarks.errors import BenchmarkError
from benchmarks.growth import measure_growth
from benchmarks.machine import describe_machine
from benchmarks.materials import Workshop, calibration_text, size_on_disk, untrained_base
from benchmarks.places import CACHE, CPP_PROGRAM, PEERS, RESULTS
from benchmarks.report import Floor, Results, Size, show, write
from benchmarks.roster import BY_NAME, CPP_COMMAND
from benchmarks.small import measure_small_end
from benchmarks.speed import Settings, compare
from tfexport_train.checkpoint import Checkpoint, load_checkpoint

GROWTH = ("tfexport fp32", "tfexport int8", "CTranslate2 int8")


@dataclass(frozen=True)
class RunOptions:
    extent: str = "default"  # of the rows: quick, default or full
    parts: Sequence[str] = ()  # names in PARTS
    threads: Sequence[int] = (2, 1)
    labels: Sequence[str] | None = None  # of rows; None: all of the extent
    contenders: Sequence[str] | None = None  # None: all
    rounds: int = 5
    turn_seconds: float = 0.4
    trained: Path | None = None  # checkpoint for natural lengths
    text: Path | None = None  # source text for it and for the small end
    calibration: Path | None = None  # text for the activations of the trained model; None: random
    sentences: int = 200
    base: Path | None = None  # None: made from train/configs/base.yaml
    bundles: Mapping[str, Path] = field(default_factory=dict)  # of the base model, by material
    peers: Path = PEERS
    cache: Path = CACHE
    reuse: bool = False  # cached models, whatever sources they were made from
    output: Path = RESULTS


@dataclass(frozen=True)
class Bench:
    """What the parts of a run share."""

    options: RunOptions
    workshop: Workshop  # of the base model
    base: Checkpoint
    settings: Settings

    def text_of(self, tokens: int, count: int = 1) -> tuple[str, ...]:
        """Random texts of so many tokens for the base model, `eos` counted."""
        source = self.base.source
        return texts.random_texts(
            source.tokenizer(self.base.config.unk_id), count, tokens - source.add_bos - source.add_eos
        )

    def wanted(self, names: Sequence[str]) -> list[str]:
        """Those that were asked for and can take part."""
        chosen = self.options.contenders
        able = [n for n in names if not BY_NAME[n].is_peer or self.options.peers.exists()]
        return [n for n in able if chosen is None or n in chosen]


def run(options: RunOptions) -> Results:
    """Writes the files after every part. Raises TfexportError."""
    _check(options)
    path = options.base or untrained_base(options.cache)
    base = load_checkpoint(path)
    workshop = _workshop(options, path, base, options.bundles)
    settings = Settings(options.rounds, options.turn_seconds, _say)
    bench = Bench(options, workshop, base, settings)
    results = Results(describe_machine(Path(sys.executable), options.peers))
    for name in options.parts:
        PARTS[name](results, bench)
        write(results, options.output)
    show(results)
    return results


def _workshop(
    options: RunOptions,
    path: Path,
    checkpoint: Checkpoint,
    given: Mapping[str, Path],
    calibration: Path | None = None,
) -> Workshop:
    folder, tokenizer = options.cache / path.stem, checkpoint.source.tokenizer(checkpoint.config.unk_id)
    text = calibration or calibration_text(tokenizer, folder / "calibration.txt")
    return Workshop(path, folder, options.peers, given, text, _say, options.reuse)


def _check(options: RunOptions) -> None:
    unknown = set(options.contenders or ()) - set(BY_NAME)
    if unknown:
        raise BenchmarkError(f"unknown contender {', '.join(sorted(unknown))}; choose among {', '.join(BY_NAME)}")
    if options.trained is not None and options.text is None:
        raise BenchmarkError("--checkpoint needs --text")


def _speed(results: Results, bench: Bench) -> None:
    rows = _chosen(plan.rows(bench.options.extent, bench.options.threads), bench.options)
    if not rows:
        return
    found, checks = compare(
        rows,
        lambda row: bench.text_of(row.source or plan.SHORT, row.batch or 1),
        bench.workshop,
        bench.settings,
    )
    results.rows += found
    results.checks += checks


def _trained(results: Results, bench: Bench) -> None:
    options = bench.options
    rows = _chosen(plan.trained_rows(options.extent, options.threads), options)
    if options.trained is None or options.text is None or not rows:
        return
    sentences = texts.lines(options.text, options.sentences)
    workshop = _workshop(options, options.trained, load_checkpoint(options.trained), {}, options.calibration)
    found, checks = compare(rows, lambda row: sentences, workshop, bench.settings)
    results.rows += found
    results.checks += checks


def _cold(results: Results, bench: Bench) -> None:
    source = bench.base.source
    (text,) = bench.text_of(plan.SHORT)
    tokenizer = source.tokenizer(bench.base.config.unk_id)
    ids = [*tokenizer.encode(text), *[bench.base.config.eos_id] * source.add_eos]
    names = bench.wanted([*plan.OURS, CPP_COMMAND.name, *plan.CTRANSLATE2])
    if not CPP_PROGRAM.exists() and CPP_COMMAND.name in names:
        _say(f"{CPP_COMMAND.name} is left out: run make cpp")
        names.remove(CPP_COMMAND.name)
    results.cold += measure_cold(
        names, bench.workshop, text, " ".join(tokenizer.tokens(ids)), max(3, bench.settings.rounds)
    )


def _size(results: Results, bench: Bench) -> None:
    float_bytes = 4 * sum(p.numel() for p in bench.base.build_model().parameters())
    for name in bench.wanted([*plan.OURS, *plan.CTRANSLATE2, "Optimum fp32"]):
        material = BY_NAME[name].material
        size = size_on_disk(material, bench.workshop.material(material))
        results.sizes.append(Size(name, size, size / float_bytes))


def _floor(results: Results, bench: Bench) -> None:
    """Of the rows that were measured before."""
    weights = weights_of_a_step(bench.base.config)
    for threads in bench.options.threads:
        bandwidth = read_bandwidth(threads)
        _say(f"memory, {threads} threads: {bandwidth / 1e9:.1f} GB/s")
        rows = [r for r in results.rows if r.row.model == "base" and (r.row.threads, r.row.label) == (threads, "B1 K1")]
        for result in rows:
            for name in (n for n in result.times if n in (*plan.OURS, *plan.CTRANSLATE2)):
                floor = 1e3 * weights * BYTES_A_WEIGHT[name.rpartition(" ")[2]] / bandwidth
                results.floors.append(Floor(name, threads, bandwidth, floor, result.figure(name)))


def _growth(results: Results, bench: Bench) -> None:
    tokens = bench.base.config.max_positions - 1
    (text,) = bench.text_of(plan.SHORT)
    results.growth += measure_growth(
        bench.wanted(GROWTH), bench.workshop, text, tokens, bench.settings.rounds, bench.options.threads[0]
    )


def _small(results: Results, bench: Bench) -> None:
    options = bench.options
    if options.text is None:
        _say("the small end is left out: it needs --text")
        return
    try:
        sentences = texts.lines(options.text, 1000)
        results.small += measure_small_end(sentences, options.cache, options.peers, bench.settings)
    except BenchmarkError as error:
        _say(f"the small end is left out: {error}")


def _chosen(rows: Sequence[plan.Row], options: RunOptions) -> list[plan.Row]:
    """The rows that were asked for, with the contenders that were asked for."""
    found = [row for row in rows if options.labels is None or row.label in options.labels]
    if options.contenders is not None:
        found = [replace(r, contenders=tuple(n for n in r.contenders if n in options.contenders)) for r in found]
    return [row for row in found if row.contenders]


def _say(message: str) -> None:
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


PARTS: dict[str, Callable[[Results, Bench], None]] = {
    "speed": _speed,
    "trained": _trained,
    "cold": _cold,
    "size": _size,
    "floor": _floor,
    "growth": _growth,
    "small": _small,
}
