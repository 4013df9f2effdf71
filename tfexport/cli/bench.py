"""`tfexport bench BUNDLE`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfexport.cli.console import megabytes, note, print_json, print_table
from tfexport.cli.import_flags import opened, with_import_flags
from tfexport_runtime.errors import OptionError

if TYPE_CHECKING:
    from tfexport.bench import BenchReport, Comparison, Speed
    from tfexport.operator_profile import OperatorTime


@with_import_flags
def bench(
    bundle: Annotated[Path, typer.Argument(help="Folder or zip of a bundle.")],
    checkpoint: Annotated[
        Path | None, typer.Option(help="Compare with PyTorch on what the bundle was made from.")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(help="Source text, one a line; else random pieces of the vocabulary.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; all cores of the process if not given.")] = None,
    sentences: Annotated[int, typer.Option(min=1, help="How many are translated, one by one and as a batch.")] = 32,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of the batch and of the comparison.")] = 5,
    profile: Annotated[bool, typer.Option("--profile", help="Also the operators that a step's time goes to.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    *,
    importing: Mapping[str, Any],
) -> None:
    """Measure load time, latency, throughput, memory and size on this machine."""
    from tfexport.bench import BenchOptions, bench_bundle

    if checkpoint is None and any(importing.values()):
        raise OptionError("options about a checkpoint of another kind need --checkpoint")
    model = None if checkpoint is None else partial(opened, checkpoint, importing)
    options = BenchOptions(model, text, threads, sentences, repeats, profile=profile)
    report = bench_bundle(bundle, options, on_stage=lambda stage: note(f"measuring: {stage}"))
    if as_json:
        print_json(report.to_dict())
    else:
        _show(report)


def _show(report: BenchReport) -> None:
    cold = report.cold_start
    rows = {
        **{name: str(value) for name, value in report.machine.items()},
        "size on disk": megabytes(report.size),
        "cold start": f"{1e3 * cold.import_seconds:.0f} ms imports, {1e3 * cold.load_seconds:.0f} ms load, "
        f"{1e3 * cold.first_translation_seconds:.0f} ms first line",
        "peak memory": megabytes(cold.peak_memory) if cold.peak_memory is not None else "not known here",
    }
    print_table("Bundle and machine", ["", ""], [[name, value] for name, value in rows.items()])
    header = ["search", "batch", "ms/sentence p50", "p95", "ms/token p50", "p95", "tokens/s"]
    print_table("Speed", header, [_speed_row(speed) for speed in report.speeds])
    if report.comparison:
        _show_comparison(report.comparison)
    if report.profile:
        _show_profile(report.profile)


def _speed_row(speed: Speed) -> list[str]:
    times = (speed.sentence_p50, speed.sentence_p95, speed.token_p50, speed.token_p95)
    return [speed.search, str(speed.batch), *(f"{t:.2f}" for t in times), f"{speed.tokens_per_second:.0f}"]


def _show_profile(operators: Sequence[OperatorTime]) -> None:
    rows = [[o.operator, str(o.calls or ""), f"{o.milliseconds:.3f}", f"{100 * o.share:.1f}"] for o in operators]
    print_table("A decoding step, greedy, one sentence", ["operator", "calls", "ms", "per cent"], rows)


def _show_comparison(comparison: Comparison) -> None:
    rows = [
        [row.name, f"{row.minimum:.1f}", f"{row.median:.1f}", f"{row.minimum / comparison.rows[-1].minimum:.1f}"]
        for row in comparison.rows
    ]
    header = ["", "ms minimum", "ms median", "times the bundle's"]
    print_table(f"One sentence, greedy, {comparison.tokens} tokens", header, rows)
    same = "the same tokens" if comparison.same_tokens else "NOT the same tokens"
    typer.echo(f"The bundle is {comparison.ratio:.1f} times as fast as recomputing everything, with {same}.")
