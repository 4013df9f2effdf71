"""A bundle appears whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tfexport.errors import ExportError
from tfexport_runtime.archive import pack_zip
from tfexport_runtime.manifest import MANIFEST_NAME


@contextlib.contextmanager
def published_when_complete(target: Path, as_zip: bool, force: bool) -> Iterator[Path]:
    """A folder beside the target to write into; it takes the target's place when the block ends without an error.

    Raises ExportError, before any work, where the target is something other than a bundle and not `force`.
    """
    _check_target(target, as_zip, force)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        yield folder
        if as_zip:
            pack_zip(folder, target)
        else:
            _sync(folder)
            _replace_folder(folder, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_target(target: Path, as_zip: bool, force: bool) -> None:
    if not target.exists() or force:
        return
    if as_zip and target.is_dir():
        raise ExportError(f"{target}: is a folder; give a file name for the zip")
    replaceable = target.is_file() if as_zip else (target / MANIFEST_NAME).is_file() or _is_empty_folder(target)
    if not replaceable:
        raise ExportError(f"{target}: exists and is not a bundle; choose another place, or allow it with --force")


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _sync(folder: Path) -> None:
    for path in [*folder.iterdir(), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _replace_folder(folder: Path, target: Path) -> None:
    """After this, `target` is the new folder and `folder` the old one, if there was any."""
    folder.chmod(0o755)  # mkdtemp made it private
    if not target.exists():
        folder.rename(target)
    elif not _exchange(folder, target):
        old = folder.with_name(folder.name + ".old")
        target.rename(old)
        folder.rename(target)
        shutil.rmtree(old) if old.is_dir() else old.unlink()


def _exchange(one: Path, other: Path) -> bool:
    """Swaps two folders in one step (Linux); False where the system cannot."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    at_cwd, exchange = -100, 2
    return renameat2 is not None and not renameat2(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), exchange)
