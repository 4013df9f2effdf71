"""`tfexport serve-web BUNDLE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve_web(
    bundle: Annotated[Path, typer.Argument(help="Folder or zip of a bundle.")],
    port: Annotated[int, typer.Option(help="0: any free one.", min=0, max=65535)] = 8000,
    isolation: Annotated[
        bool, typer.Option("--isolation/--no-isolation", help="Send the headers that allow threads.")
    ] = True,
) -> None:
    """Serve the translator page for a bundle, to this machine only, until Ctrl-C."""
    from tfexport.serve_web import open_server
    from tfexport_runtime.bundle import read_bundle

    with open_server(read_bundle(bundle), port, isolation) as server:
        typer.echo(f"http://127.0.0.1:{server.server_address[1]}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
