"""Files that appear whole or not at all. Imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced_when_complete(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; it takes the place of `path` only when the block ends without an error.

    A link is followed. A device or a pipe cannot be replaced and is written directly. Raises OSError.
    """
    path = path.resolve()
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder, expected the name of a file")
    if path.exists() and not path.is_file():
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
