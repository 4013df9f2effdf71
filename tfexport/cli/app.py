"""All commands under one name. Each command is one file; what is slow to import is imported inside its function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from tfexport.cli.bench import bench
from tfexport.cli.demo import demo
from tfexport.cli.export import export
from tfexport.cli.import_ import import_
from tfexport.cli.init import init
from tfexport.cli.inspect import inspect
from tfexport.cli.package import package
from tfexport.cli.serve_web import serve_web
from tfexport.cli.train import train
from tfexport.cli.translate import translate
from tfexport.cli.verify import verify
from tfexport_runtime.errors import OptionError

app = typer.Typer(
    name="tfexport",
    help="Train or bring an encoder-decoder Transformer, export a verified bundle, run it anywhere.",
    epilog="Start here: tfexport demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command(epilog="Example: tfexport train train/configs/dates.yaml --output run")(train)
app.command(epilog="Example: tfexport init train/configs/dates.yaml -o run/untrained.pt")(init)
app.command(
    name="import",
    epilog="Example: tfexport import model.pt -o ckpt.pt --set heads=8 --ids\n\n"
    "Your class decides what is open: tfexport import model.pt -o ckpt.pt --reference my:make\n\n"
    "Names of your own: tfexport import model.pt --key-map map.yaml --explain",
)(import_)
app.command(epilog="Example: tfexport export run/ckpt.pt -o bundle")(export)
app.command(epilog="Example: tfexport verify bundle run/ckpt.pt --text in.txt --reference out.txt")(verify)
app.command(epilog="Example: tfexport translate bundle --beam-size 5 < in.txt > out.txt")(translate)
app.command(epilog="Example: tfexport bench bundle --checkpoint run/ckpt.pt")(bench)
app.command(epilog="Example: tfexport inspect bundle")(inspect)
app.command(epilog="Example: tfexport demo --output demo")(demo)
app.command(name="serve-web", epilog="Example: tfexport serve-web bundle")(serve_web)
app.add_typer(package, name="package")


def run(arguments: Sequence[str]) -> int:
    """The exit status of a command. Raises what goes wrong, wrong usage as OptionError."""
    try:
        status = app(list(arguments), prog_name="tfexport", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        command = " ".join(["tfexport", *arguments[:1]]) if arguments[:1] and arguments[0] in _names() else "tfexport"
        raise OptionError(f"{error.format_message().rstrip('.')}; see {command} --help") from error
    return status if isinstance(status, int) else 0


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tfexport {version('tfexport')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from; works anywhere.")] = False,
) -> None:
    """Options that stand before the command; main() reads --debug."""


def _names() -> set[str]:
    return {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
