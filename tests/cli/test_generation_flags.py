"""Every field of TranslationOptions has a flag that sets it and nothing else, in both commands."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tfexport_runtime.__main__ import main as runtime_main
from tfexport_runtime.errors import OptionError
from tfexport_runtime.flags import GENERATION_FLAGS, chosen_options
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.translation import EMPTY, Translation

BUNDLE_DEFAULTS = TranslationOptions(beam_size=3, alpha=0.7)
VALUES: dict[str, tuple[str, Any]] = {
    "length_penalty": ("gnmt", "gnmt"),
    "suppress_tokens": ("17,42", (17, 42)),
    "top_p": ("0.25", 0.25),
    "prefix_strength": ("0.25", 0.25),
}


def given(name: str) -> tuple[list[str], Any]:
    """Arguments for a flag, and what its field must be then."""
    option, kind = "--" + name.replace("_", "-"), GENERATION_FLAGS[name].kind
    if kind is bool:
        return [option], True
    text, value = VALUES.get(name, ("7", kind(7)))
    return [option, text], value


class FakeTranslator:
    """Keeps the options it was called with."""

    seen: list[TranslationOptions]
    default_options = BUNDLE_DEFAULTS

    def __init__(self, path: object, session_options: object = None, engine: object = None) -> None:
        FakeTranslator.seen = []

    def translate(
        self, texts: Sequence[str], options: TranslationOptions, prefixes: Sequence[str] | None = None
    ) -> list[Translation]:
        self.seen.append(options)
        return [EMPTY for _ in texts]


@pytest.fixture
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfexport_runtime.translator.Translator", FakeTranslator)


def test_there_is_a_flag_for_every_field_but_the_callback() -> None:
    assert [*GENERATION_FLAGS, "callback"] == [f.name for f in fields(TranslationOptions)]


@pytest.mark.usefixtures("_fake")
@pytest.mark.parametrize("name", GENERATION_FLAGS)
def test_flag_sets_its_field_and_no_other(cli: Cli, name: str) -> None:
    arguments, value = given(name)
    assert cli("translate", "bundle", *arguments, stdin=b"a\n").status == 0
    assert FakeTranslator.seen[-1] == replace(BUNDLE_DEFAULTS, **{name: value})


@pytest.mark.usefixtures("_fake")
@pytest.mark.parametrize("name", GENERATION_FLAGS)
def test_flag_of_the_runtime_command_does_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, value = given(name)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    assert runtime_main(["bundle", *arguments]) == 0
    assert FakeTranslator.seen[-1] == replace(BUNDLE_DEFAULTS, **{name: value})


@pytest.mark.usefixtures("_fake")
@pytest.mark.parametrize("name", [name for name, flag in GENERATION_FLAGS.items() if flag.kind is bool])
def test_switch_can_be_turned_off(cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeTranslator, "default_options", replace(BUNDLE_DEFAULTS, **{name: True}))
    cli("translate", "bundle", "--no-" + name.replace("_", "-"), stdin=b"a\n")
    assert getattr(FakeTranslator.seen[-1], name) is False


@pytest.mark.usefixtures("_fake")
def test_without_flags_the_bundle_decides(cli: Cli) -> None:
    cli("translate", "bundle", stdin=b"a\n")
    assert FakeTranslator.seen[-1] == BUNDLE_DEFAULTS


def test_ids_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(OptionError, match="17,x"):
        chosen_options({"suppress_tokens": "17,x"}, BUNDLE_DEFAULTS)
