"""What lies in a Hugging Face folder, read as it is asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from tfexport.checkpoints.tokenizers.tokens import read_text
from tfexport.checkpoints.weight_files import NAMESPACES, read_safetensors
from tfexport_train.checkpoint import load_untrusted
from tfexport_train.errors import CheckpointError

Choice = TypeVar("Choice")

CONFIG_FILE = "config.json"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Settings:
    """The values of a JSON file, checked as they are read. An absent value and null are the same."""

    path: Path
    values: Mapping[str, Any]

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    @property
    def library_version(self) -> int:
        """The first number of the version of transformers that wrote the file; 0 where it does not say."""
        first = self.text("transformers_version").partition(".")[0]
        return int(first) if first.isdecimal() and len(first) < 4 else 0

    def integer(self, name: str, default: int | None = None) -> int:
        """Raises CheckpointError, as all of these do, for a value of another kind or one that must be there."""
        return self._typed(name, default, int, "an integer")

    def number(self, name: str, default: float | None = None) -> float:
        value = self.values.get(name)
        return float(value) if type(value) is int else self._typed(name, default, float, "a number")

    def flag(self, name: str, default: bool) -> bool:
        return self._typed(name, default, bool, "true or false")

    def text(self, name: str, default: str = "") -> str:
        return self._typed(name, default, str, "text")

    def choice(self, name: str, choices: Mapping[str, Choice], default: str) -> Choice:
        value = self.text(name, default)
        if value not in choices:
            self.refuse(name, f"one of {', '.join(choices)} is")
        return choices[value]

    def only(self, name: str, wanted: object) -> None:
        """Refuses a value that is there and is another one."""
        if name in self and self.values[name] != wanted:
            self.refuse(name, f"{json.dumps(wanted)} is")

    def refuse(self, name: str, supported: str) -> None:
        """supported: for people, such as "true is"."""
        raise CheckpointError(f"{self.path}: {name}={json.dumps(self.values[name])} is not supported; {supported}")

    def _typed(self, name: str, default: Choice | None, kind: type[Choice], words: str) -> Choice:
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise CheckpointError(f"{self.path}: {name} is missing")
        if type(value) is not kind:
            raise CheckpointError(f"{self.path}: {name} must be {words}, not {json.dumps(value)}")
        return value


@dataclass(frozen=True)
class Folder:
    path: Path

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    @cached_property
    def config(self) -> Settings:
        return self.settings(CONFIG_FILE)

    @cached_property
    def generation(self) -> Settings:
        """How its authors generate: a file of its own, or, in older folders, a part of config.json."""
        name = "generation_config.json"
        return self.settings(name) if self.has(name) else self.config

    def special(self, name: str, default: int | None = None) -> int:
        """A token's id, which stands in one of the two files or in both."""
        file = self.generation if name in self.generation else self.config
        if isinstance(file.values.get(name), list):
            file.refuse(name, "one id is")
        return file.integer(name, default)

    def settings(self, name: str) -> Settings:
        """A JSON file; one that is not there is empty. Raises CheckpointError."""
        if not self.has(name):
            return Settings(self.path / name, {})
        try:
            values = json.loads(read_text(self.path / name))
        except ValueError as error:
            raise CheckpointError(f"{self.path / name}: not JSON: {error}") from error
        if not isinstance(values, dict):
            raise CheckpointError(f"{self.path / name}: expected an object, found {type(values).__name__}")
        return Settings(self.path / name, values)

    def weights(self) -> dict[str, Tensor]:
        """By their names without the wrapper `model.`; mapped from the files. Raises CheckpointError."""
        tensors: dict[str, Tensor] = {}
        for file in self._weight_files():
            content = (
                read_safetensors(file) if file.suffix == ".safetensors" else load_untrusted(file, NAMESPACES, True)
            )
            if not isinstance(content, dict):
                raise CheckpointError(f"{file}: holds no state_dict, that is, no names with tensors")
            tensors |= {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
        return {name.removeprefix("model."): tensor for name, tensor in tensors.items()}

    def _weight_files(self) -> list[Path]:
        for name in _WEIGHTS:
            if self.has(name):
                return [self.path / name]
            if self.has(f"{name}.index.json"):
                return self._shards(f"{name}.index.json")
        raise CheckpointError(f"{self.path}: no weights; expected {' or '.join(_WEIGHTS)}, or an index of their parts")

    def _shards(self, index: str) -> list[Path]:
        places = self.settings(index).values.get("weight_map")
        names = sorted(set(places.values())) if isinstance(places, dict) else []
        for name in names:
            if not isinstance(name, str) or name != Path(name).name or not self.has(name):
                raise CheckpointError(f"{self.path / index}: names {name!r}, which is no file of this folder")
        return [self.path / name for name in names]
