"""`tfexport package web BUNDLE -o SITE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfexport.cli.console import megabytes, note

package = typer.Typer(help="Make something that others can run without tfexport.", no_args_is_help=True)


@package.callback()
def _group() -> None:
    """Keeps the name of the kind in the command, also while there is only one."""


@package.command(epilog="Example: tfexport package web bundle -o site")
def web(
    bundle: Annotated[Path, typer.Argument(help="Folder or zip of a bundle.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write, for any static server.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a folder that holds something else.")] = False,
) -> None:
    """Write a translator as a web page: page, runtime, engine and bundle in one folder.

    Threads need a server that sends the headers in the file _headers; without them the page uses one thread.
    """
    from tfexport.package_web import package_web

    size = package_web(bundle, output, force)
    note(f"wrote {output}, {megabytes(size)}; try it: tfexport serve-web {bundle}")
