"""The options of all commands that take a checkpoint of any kind: what its file cannot tell."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfexport.cli.console import warn

if TYPE_CHECKING:
    from tfexport.checkpoints.imported import ImportOptions
    from tfexport_train.checkpoint import Checkpoint

_PANEL = "Checkpoints of other kinds"


def with_import_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command these options in place of its last parameter, which gets their values by name."""
    *own, last = inspect.signature(command, eval_str=True).parameters.values()
    # Where --reference stands for something else, the user's class has its longer name alone.
    reference = (
        ("--reference-class",) if any(p.name == "reference" for p in own) else ("--reference-class", "--reference")
    )
    flags = {**_FLAGS, "reference_class": _flag(str | None, *reference, help=_REFERENCE_HELP, metavar="MODULE:FACTORY")}

    def wrapped(**given: Any) -> None:
        importing = {name: given.pop(name) for name in flags}
        command(**given, **{last.name: importing})

    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, keyword, default=None, annotation=hint) for name, hint in flags.items()]
    parameters = [p.replace(kind=keyword) for p in own] + added
    wrapped.__doc__, wrapped.__name__ = command.__doc__, command.__name__
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def opened(checkpoint: Path, given: Mapping[str, Any]) -> Checkpoint:
    """A checkpoint of any kind; what was decided about it is said on stderr. Raises CheckpointError and ConfigError."""
    from tfexport.checkpoints import open_checkpoint

    imported = open_checkpoint(checkpoint, import_options(checkpoint, given))
    for remark in imported.notes:
        warn(remark)
    return imported.checkpoint


def import_options(checkpoint: Path, given: Mapping[str, Any]) -> ImportOptions:
    """From the values of these flags and the YAML file beside the checkpoint. Raises ConfigError."""
    from tfexport.checkpoints.facts_file import facts_beside, parse_facts, with_facts
    from tfexport.checkpoints.imported import ImportOptions

    options = ImportOptions(
        config=parse_facts(given["facts"] or ()),
        source_tokenizer=given["source_tokenizer"],
        target_tokenizer=given["target_tokenizer"],
        source_language=given["source_language"],
        target_language=given["target_language"],
        key_map=given["key_map"],
        reference=given["reference_class"],
        ids=bool(given["ids"]),
    )
    file = given["config"] or facts_beside(checkpoint)
    if file is None:
        return options
    if given["config"] is None:
        warn(f"facts are read from {file} as well")
    return with_facts(options, file)


def _flag(kind: Any, *names: str, help: str, metavar: str | None = None) -> Any:  # noqa: A002  typer's own word
    return Annotated[kind, typer.Option(*names, help=help, metavar=metavar, rich_help_panel=_PANEL, show_default=False)]


_REFERENCE_HELP = "Your own class, to compare with and to decide what is open; its code is run."
_FLAGS: Mapping[str, Any] = {
    "facts": _flag(list[str] | None, "--set", help="A fact, such as heads=8; again for more.", metavar="NAME=VALUE"),
    "config": _flag(Path | None, "--config", help="YAML file of such facts; CKPT.yaml is read if it is there."),
    "source_tokenizer": _flag(
        Path | None, "--source-tokenizer", help="SentencePiece .model, tokenizer.json, vocab.txt."
    ),
    "target_tokenizer": _flag(Path | None, "--target-tokenizer", help="As the source's if not given."),
    "source_language": _flag(str | None, "--source-language", help="Where one model knows several, such as eng_Latn."),
    "target_language": _flag(str | None, "--target-language", help="The same for the translation."),
    "key_map": _flag(Path | None, "--key-map", help="YAML file: names of its weights to ours; docs/import.md."),
    "ids": _flag(bool | None, "--ids", help="No tokenizer: text is ids, such as 17 4 32."),
}
