"""`python -m benchmarks`: one run that compares bundles with other ways to run the same weights."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from benchmarks.places import CACHE, PEERS, RESULTS
from benchmarks.run import PARTS, RunOptions, run
from tfexport_runtime.errors import TfexportError


def main() -> int:
    options = _options(_parser().parse_args())
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # the workers, which are stopped, are ended too
    try:
        run(options)
    except TfexportError as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return error.exit_status
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare bundles with other ways to run the same weights: one run, everybody in turn.",
    )
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_const", dest="extent", const="quick", help="two rows, two rounds")
    extent.add_argument("--full", action="store_const", dest="extent", const="full", help="every row, every contender")
    parser.add_argument(
        "--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="what to measure; all if not given"
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[2, 1], metavar="N", help="2 and 1 if not given")
    parser.add_argument("--rows", nargs="+", metavar="LABEL", help='only these, such as "B1 K1" or "B8 K4 S200"')
    parser.add_argument("--only", nargs="+", metavar="NAME", help='only these contenders, such as "tfexport int8"')
    parser.add_argument("--rounds", type=int, help="turns of each contender in a row; 5 if not given")
    parser.add_argument("--turn", type=float, default=0.4, metavar="SECONDS", help="of a turn, one run at least")
    parser.add_argument("--checkpoint", type=Path, help="a trained model, for natural lengths")
    parser.add_argument(
        "--text", type=Path, help="English text, one sentence a line: for --checkpoint and the small end"
    )
    parser.add_argument("--calibrate", type=Path, help="text for the activations of --checkpoint; random if not given")
    parser.add_argument("--sentences", type=int, default=200, help="how many of them; 200 if not given")
    parser.add_argument(
        "--bundle",
        nargs="+",
        default=[],
        metavar="PRECISION=FOLDER",
        help="use this bundle of the untrained base model",
    )
    parser.add_argument("--base", type=Path, help="checkpoint of the base model, where --bundle was made from another")
    parser.add_argument("--peers", type=Path, default=PEERS, metavar="PYTHON", help="interpreter that has the peers")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where models are kept between runs")
    parser.add_argument("--reuse", action="store_true", help="take cached models even if the exporter changed since")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of results.json, .md and .png")
    parser.set_defaults(extent="default")
    return parser


def _options(found: argparse.Namespace) -> RunOptions:
    given = dict(pair.partition("=")[::2] for pair in found.bundle)
    return RunOptions(
        extent=found.extent,
        parts=tuple(found.parts),
        threads=tuple(found.threads),
        labels=tuple(found.rows) if found.rows else None,
        contenders=tuple(found.only) if found.only else None,
        rounds=found.rounds or (2 if found.extent == "quick" else 5),
        turn_seconds=found.turn,
        trained=found.checkpoint,
        text=found.text,
        calibration=found.calibrate,
        sentences=found.sentences,
        base=found.base,
        bundles={f"bundle-{precision}": Path(folder) for precision, folder in given.items()},
        peers=found.peers,
        cache=found.cache,
        reuse=found.reuse,
        output=found.output,
    )


if __name__ == "__main__":
    sys.exit(main())
