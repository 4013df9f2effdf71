"""`python -m tfexport_runtime BUNDLE < in.txt > out.txt`: all that a machine with the base install and [cpu] needs."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfexport_runtime.failures import failure, report
from tfexport_runtime.flags import GENERATION_FLAGS, Flag, chosen_options

if TYPE_CHECKING:
    from tfexport_runtime.session import SessionOptions

PROGRAM = "python -m tfexport_runtime"


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    try:
        _translate(given)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  a command ends with one line, whatever happened
        if given.debug:
            traceback.print_exc()
        return report(failure(error), "tfexport_runtime")
    return 0


def _translate(given: argparse.Namespace) -> None:
    from tfexport_runtime.line_stream import Format, Lines, formatted, translate_lines
    from tfexport_runtime.translator import Translator

    translator = Translator(given.bundle, _session_options(given))
    options = chosen_options({name: getattr(given, name) for name in GENERATION_FLAGS}, translator.default_options)
    form: Format = "json" if given.json else "scores" if given.scores else "text"
    out = sys.stdout.buffer
    for chunk in translate_lines(translator, Lines(sys.stdin.buffer, "input"), None, options, _warn):
        out.writelines(formatted(number, t, form, options.n_best).encode("utf-8") for number, t in chunk)
        out.flush()


def _session_options(given: argparse.Namespace) -> SessionOptions:
    from tfexport_runtime.session import SessionOptions

    return SessionOptions(threads=given.threads, parallel_batches=given.parallel, provider=given.provider)


def _warn(message: str) -> None:
    sys.stderr.write(f"tfexport_runtime: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        PROGRAM,
        usage=f"{PROGRAM} BUNDLE [options] < in.txt > out.txt",
        description="Translates standard input line by line to standard output.",
        epilog=f"example: {PROGRAM} bundle/ --beam-size 4 < in.txt > out.txt",
        allow_abbrev=False,
    )
    parser.add_argument("bundle", help="folder or zip of a bundle")
    parser.add_argument("--threads", type=int, help="of ONNX Runtime; all cores of this process if not given")
    parser.add_argument("--parallel", type=int, default=1, help="batches at the same time")
    parser.add_argument("--provider", choices=["cpu", "cuda"], default="cpu", help="cuda was not run on a GPU yet")
    parser.add_argument("--scores", action="store_true", help="print the score and a TAB before each text")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each line")
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    groups: dict[str, argparse._ArgumentGroup] = {}
    for name, flag in GENERATION_FLAGS.items():
        if flag.group not in groups:
            groups[flag.group] = parser.add_argument_group(flag.group)
        _add(groups[flag.group], name, flag)
    return parser


def _add(group: argparse._ArgumentGroup, name: str, flag: Flag) -> None:
    option = "--" + name.replace("_", "-")
    if flag.kind is bool:
        group.add_argument(option, action=argparse.BooleanOptionalAction, help=flag.help)
    else:
        group.add_argument(option, type=flag.kind, help=flag.help)


if __name__ == "__main__":
    sys.exit(main())
