"""Facts about a checkpoint in a small YAML file: beside it under its name, or wherever --config says."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tfexport.checkpoints.imported import ImportOptions
from tfexport_train.errors import ConfigError
from tfexport_train.yaml_file import read_yaml

_PATHS = ("source_tokenizer", "target_tokenizer", "key_map")
_OPTIONS = tuple(f.name for f in fields(ImportOptions) if f.name != "config")
_ALIASES = {"heads": "num_heads"}


def facts_beside(checkpoint: Path) -> Path | None:
    """CKPT.pt.yaml or CKPT.yaml, where one of them is there."""
    names = [checkpoint.with_name(checkpoint.name + ".yaml")]
    names += [checkpoint.with_suffix(".yaml")] if checkpoint.is_file() else []
    return next((file for file in names if file.is_file()), None)


def with_facts(options: ImportOptions, file: Path) -> ImportOptions:
    """The options, laid over those of the file: what --set holds, and the other options by their names.

    Raises ConfigError.
    """
    content = read_mapping(file)
    found = {name: content.pop(name) for name in _OPTIONS if name in content}
    base = ImportOptions(config=by_field_name(content), **_typed(found, file))
    given = {name: value for name in _OPTIONS if (value := getattr(options, name))}
    return replace(base, config={**base.config, **options.config}, **given)


def parse_facts(settings: Iterable[str]) -> dict[str, Any]:
    """From NAME=VALUE, the value as YAML writes it. Raises ConfigError."""
    import yaml

    parts = [setting.partition("=") for setting in settings]
    wrong = [name for name, sign, _ in parts if not sign]
    if wrong:
        raise ConfigError(f"--set {wrong[0]}: expected NAME=VALUE, such as --set heads=8")
    try:
        return by_field_name({name: yaml.safe_load(value) for name, _, value in parts})
    except yaml.YAMLError as error:
        raise ConfigError(f"--set: {' '.join(str(error).split())}") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """Raises ConfigError."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected keys and values, found {type(content).__name__}")
    return {str(name): value for name, value in content.items()}


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raises ConfigError that names each unknown one with the nearest known."""
    known = list(known)
    wrong = [name for name in given if name not in known]
    if wrong:
        near = [(name, difflib.get_close_matches(name, known, n=1, cutoff=0.5)) for name in wrong]
        words = [f"{name} (did you mean {close[0]}?)" if close else name for name, close in near]
        raise ConfigError(f"{what}: unknown {', '.join(words)}")


def by_field_name(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {_ALIASES.get(name, name): value for name, value in facts.items()}


def _typed(found: Mapping[str, Any], file: Path) -> dict[str, Any]:
    wanted = {name: bool if name == "ids" else str for name in _OPTIONS}
    wrong = [name for name, value in found.items() if type(value) is not wanted[name]]
    if wrong:
        raise ConfigError(f"{file}: {wrong[0]} must be {wanted[wrong[0]].__name__}, not {found[wrong[0]]!r}")
    return {name: file.parent / value if name in _PATHS else value for name, value in found.items()}
