"""How a command fails: one line on stderr and an exit status by kind."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import dataclass

from tfexport_runtime.errors import TfexportError

STATUS_INTERNAL = 1
STATUS_USAGE = 2
STATUS_FILE = 4
STATUS_MISSING_PACKAGE = 5
STATUS_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
STATUS_BROKEN_PIPE = 141  # 128 + SIGPIPE

# Import name of a package to the extra that brings it.
_EXTRAS = {
    "onnxruntime": "cpu",
    "torch": "train",
    "yaml": "train",
    "sacrebleu": "train",
    "matplotlib": "train",
    "typer": "export",
    "rich": "export",
    "onnx": "export",
    "onnxscript": "export",
    "onnx_ir": "export",
    "safetensors": "export",
    "babel": "demo",
}
_REASONS = {
    errno.ENOENT: "no such file or folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "is on a read-only disk",
    errno.ENOSPC: "no space left on the disk; free some or write elsewhere",
    errno.EDQUOT: "no space left in your quota; free some or write elsewhere",
    errno.EFBIG: "a file would become larger than is allowed here",
    errno.EISDIR: "is a folder, expected a file",
    errno.ENOTDIR: "a part of the path is not a folder",
    errno.EMFILE: "too many open files",
}


@dataclass(frozen=True)
class Failure:
    """What is printed, empty for nothing, and the exit status."""

    message: str
    status: int


def failure(error: BaseException) -> Failure:
    """The right words for any error."""
    if isinstance(error, TfexportError):
        return Failure(str(error), error.exit_status)
    if isinstance(error, KeyboardInterrupt):
        return Failure("interrupted", STATUS_INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        return Failure("", STATUS_BROKEN_PIPE)
    if isinstance(error, OSError):
        return Failure(_describe(error), STATUS_FILE)
    if isinstance(error, ModuleNotFoundError) and (extra := _EXTRAS.get((error.name or "").partition(".")[0])):
        return Failure(f'{error.name} is not installed; run: pip install "tfexport[{extra}]"', STATUS_MISSING_PACKAGE)
    if isinstance(error, MemoryError):
        return Failure("not enough memory; use a smaller batch or a machine with more", STATUS_INTERNAL)
    return Failure(f"unexpected {type(error).__name__}: {error}; --debug shows where", STATUS_INTERNAL)


def report(found: Failure, program: str) -> int:
    """Prints one line, whatever the message holds. Returns the exit status."""
    _drop_output_that_cannot_be_written()
    if found.message:
        sys.stderr.write(f"{program}: {' '.join(found.message.split())}\n")
    return found.status


def _drop_output_that_cannot_be_written() -> None:
    """After a broken pipe or a full disk, what is still buffered must not raise again when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _describe(error: OSError) -> str:
    reason = _REASONS.get(error.errno or 0) or error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename is not None else reason
