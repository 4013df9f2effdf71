"""`tfexport translate BUNDLE < in.txt > out.txt`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import typer

from tfexport.cli.console import note, progress, warn
from tfexport_runtime.flags import GENERATION_FLAGS, chosen_options


def with_generation_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command one option for each of GENERATION_FLAGS, in place of its last parameter."""
    *own, _ = inspect.signature(command, eval_str=True).parameters.values()
    flags = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                flag.kind | None, typer.Option(help=flag.help, rich_help_panel=flag.group, show_default=False)
            ],
        )
        for name, flag in GENERATION_FLAGS.items()
    ]

    def wrapped(**given: Any) -> None:
        generation = {name: given.pop(name) for name in GENERATION_FLAGS}
        command(**given, generation=generation)

    wrapped.__doc__, wrapped.__name__ = command.__doc__, command.__name__
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + flags
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


@with_generation_flags
def translate(
    bundle: Annotated[Path, typer.Argument(help="Folder or zip of a bundle.")],
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="Text to translate; standard input if not given.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write; standard output if not given.")
    ] = None,
    prefix: Annotated[Path | None, typer.Option(help="Beginnings of the translations, one for each line.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print the score and a TAB before each text.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each line.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; all cores of the process if not given.")] = None,
    parallel: Annotated[
        int, typer.Option(min=1, help="Batches at the same time: as many as there are cores is fastest for long texts.")
    ] = 1,
    provider: Annotated[
        Literal["cpu", "cuda"], typer.Option(help="Where it runs; cuda was not run on a GPU yet.")
    ] = "cpu",
    engine: Annotated[
        Literal["openvino"] | None, typer.Option(help="Run a bundle of --ops portable there, not in ONNX Runtime.")
    ] = None,
    *,
    generation: Mapping[str, Any],
) -> None:
    """Translate text line by line: as many lines come out as go in, in their order.

    Options that are not given are those of the bundle.
    """
    from tfexport.formats import openvino_engine
    from tfexport.formats.registry import open_any
    from tfexport_runtime.line_stream import Format, Lines, formatted, translate_lines
    from tfexport_runtime.session import SessionOptions
    from tfexport_runtime.translator import Translator

    form: Format = "json" if as_json else "scores" if scores else "text"
    with ExitStack() as stack:
        lines = (
            Lines(stack.enter_context(open(source, "rb")), str(source)) if source else Lines(sys.stdin.buffer, "input")
        )
        prefixes = Lines(stack.enter_context(open(prefix, "rb")), str(prefix)) if prefix else None
        session = SessionOptions(threads=threads, parallel_batches=parallel, provider=provider)
        translator = Translator(bundle, session, engine=open_any if engine is None else openvino_engine.open_model)
        options = chosen_options(generation, translator.default_options)
        sink = stack.enter_context(_sink(output))
        if source is None and sys.stdin.isatty():
            note("type a line and press Enter; Ctrl-D ends")
        advance = stack.enter_context(_counter(source))
        for chunk in translate_lines(translator, lines, prefixes, options, warn):
            sink.writelines(formatted(number, t, form, options.n_best).encode("utf-8") for number, t in chunk)
            sink.flush()
            advance(len(chunk))


@contextmanager
def _sink(path: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears only when all is written."""
    if path is None:
        yield sys.stdout.buffer
        return
    from tfexport_train.atomic import replaced_when_complete

    with replaced_when_complete(path) as temporary, open(temporary, "wb") as file:
        yield file


@contextmanager
def _counter(source: Path | None) -> Iterator[Callable[[int], None]]:
    """Counts lines on stderr, where the input is a file and a person watches."""
    if source is None or not source.is_file() or not sys.stderr.isatty():
        yield lambda count: None
        return
    with open(source, "rb") as file:
        total = sum(1 for _ in file)
    with progress() as bar:
        task = bar.add_task("translating", total=total)
        yield lambda count: bar.advance(task, count)
