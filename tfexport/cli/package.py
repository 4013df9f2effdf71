"""`tfexport package web BUNDLE -o SITE` and `tfexport package triton BUNDLE -o REPOSITORY`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfexport.cli.console import megabytes, note

package = typer.Typer(help="Make something that others can run without tfexport.", no_args_is_help=True)


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


@package.command(epilog="Example: tfexport package triton bundle -o models")
def triton(
    bundle: Annotated[Path, typer.Argument(help="Bundle of --ops portable, or of --format single.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model repository to add to; made if needed.")],
    name: Annotated[str, typer.Option(help="Of the model that clients call.")] = "translator",
    force: Annotated[bool, typer.Option("--force", help="Replace models of that name.")] = False,
) -> None:
    """Add a translator to a model repository of Triton Inference Server.

    Strings go in and come out of a bundle of two graphs, ids of a single one. The configuration is checked against
    the server's own schema and the front with a stand-in for the server; no server itself was tried.
    """
    from tfexport.package_triton import package_triton

    names = package_triton(bundle, output, name, force)
    note(f"wrote {', '.join(names)} into {output}; next: tritonserver --model-repository {output}")
