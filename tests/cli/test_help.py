"""What --help says is there, with an example that can be run as it is."""

from __future__ import annotations

import re

import pytest

from tests.cli.conftest import Cli
from tests.repository.shown_commands import assert_command_exists
from tfexport.cli.app import app

COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]


def test_every_step_of_the_main_path_is_a_command() -> None:
    assert {"train", "init", "export", "verify", "translate", "bench", "inspect", "demo"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_an_example_that_exists(cli: Cli, command: str) -> None:
    result = cli(command, "--help")
    assert result.status == 0
    example = re.search(rf"Example: (tfexport {command} .*)", result.out)
    assert example, result.out
    assert_command_exists(example.group(1))


def test_help_of_all_names_every_command(cli: Cli) -> None:
    out = cli("--help").out
    assert all(re.search(rf"\b{command} ", out) for command in COMMANDS)


def test_version_is_that_of_the_package(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli("--version").out == f"tfexport {version('tfexport')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], ["nonsense", "tfexport --help"]),
        (["translate"], ["bundle", "tfexport translate --help"]),
        (["translate", "b", "--beam-sise", "4"], ["--beam-sise"]),
        (["translate", "b", "--beam-size", "many"], ["--beam-size"]),
        (["export", "ckpt.pt"], ["--output"]),
        (["export", "ckpt.pt", "-o", "b", "--ops", "magic"], ["--ops", "portable"]),
        (["bench", "b", "--threads", "0"], ["--threads"]),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(cli: Cli, arguments: list[str], words: list[str]) -> None:
    cli(*arguments).failed_with(2, *words)
