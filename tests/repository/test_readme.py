"""What README, CONTRIBUTING and docs show can be typed as it stands."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.repository.shown_commands import ROOT, assert_command_exists, make_targets

DOCS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))


def shown(document: str) -> list[str]:
    """Every line of the code blocks, and every inline code that begins with a program's name."""
    text = (ROOT / document).read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:sh|bash|console)\n(.*?)```", text, re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return lines + re.findall(r"`((?:tfexport|make|pip install) [^`]+)`", text)


def commands(program: str) -> list[tuple[str, str]]:
    parts = [
        (document, part.removeprefix(".venv/bin/"))
        for document in ("README.md", "CONTRIBUTING.md", *DOCS)
        for line in shown(document)
        for part in re.split(r" \| | && ", line)
    ]
    return [(document, part) for document, part in parts if part.startswith(program + " ")]


def test_readme_shows_the_two_commands_and_every_step_of_the_main_path() -> None:
    text = "\n".join(shown("README.md"))
    wanted = ["make demo", "make test", *(f"tfexport {c}" for c in ("train", "export", "verify", "translate", "bench"))]
    assert [w for w in wanted if w not in text] == []


@pytest.mark.parametrize(("document", "command"), commands("tfexport"))
def test_shown_command_exists_with_its_options(document: str, command: str) -> None:
    assert_command_exists(command)


@pytest.mark.parametrize(("document", "command"), commands("make"))
def test_shown_make_target_exists(document: str, command: str) -> None:
    assert command.split()[1] in make_targets()


@pytest.mark.parametrize(("document", "command"), commands("pip install"))
def test_shown_extras_exist(document: str, command: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = re.search(r"\[([a-z,]+)\]", command)
    assert named is not None
    assert set(named.group(1).split(",")) <= set(extras)


def test_every_folder_in_the_table_exists_and_none_is_left_out() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `([a-z_/]+)/` \|", text, re.MULTILINE))
    assert named, "README has no table of folders"
    assert [folder for folder in named if not (ROOT / folder).is_dir()] == []
    assert {"tfexport", "train", "runtime", "tests"} <= {folder.split("/")[0] for folder in named}
