"""The `tfexport` command."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from tfexport_runtime.failures import Failure, failure, report

DEBUG_FLAG = "--debug"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns its exit status; every error has become one line on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG_FLAG in given  # taken out here, so that it may stand anywhere
    try:
        status = _run([argument for argument in given if argument != DEBUG_FLAG])
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  a command ends with one line, whatever happened
        if debug:
            traceback.print_exc()
        return report(_failure(error), "tfexport")
    return status


def _run(arguments: list[str]) -> int:
    from tfexport.cli.app import run

    return run(arguments)


def _failure(error: BaseException) -> Failure:
    found = failure(error)
    if isinstance(error, ModuleNotFoundError) and error.name in ("typer", "rich"):
        more = "; to run a bundle without it: python -m tfexport_runtime BUNDLE < in.txt > out.txt"
        return Failure(found.message + more, found.status)
    return found


if __name__ == "__main__":
    sys.exit(main())
