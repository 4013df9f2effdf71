"""Checks commands that people are shown: they are parsed by the real command line, and not run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import typer.main

from tfexport.cli.app import app

ROOT = Path(__file__).parent.parent.parent
_COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def assert_command_exists(line: str) -> None:
    """Fails for a `tfexport ...` line with a command, an option or a config file that does not exist."""
    name, *arguments = _words(line)[1:]
    assert name in _COMMANDS, f"no such command: {line}"
    if arguments != ["--help"]:
        _COMMANDS[name].make_context(name, arguments)
    configs = [word for word in arguments if word.startswith("train/configs/")]
    assert all((ROOT / config).exists() for config in configs), f"no such file: {line}"


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def _words(line: str) -> list[str]:
    """Without redirections."""
    words = shlex.split(line, comments=True)
    for sign in ("<", ">"):
        if sign in words:
            at = words.index(sign)
            words = words[:at] + words[at + 2 :]
    return words
