from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tfexport_train.errors import ConfigError
from tfexport_train.settings import TrainSettings, load_settings, settings_from_dict

CONFIGS = Path(__file__).parents[2] / "train" / "configs"
MINIMAL: dict[str, Any] = {"output": "run", "training": {"max_steps": 1}}


def settings(**changes: Any) -> TrainSettings:
    return settings_from_dict({**MINIMAL, **changes}, Path("/base"))


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_configuration_loads_and_explains_its_keys(file: Path) -> None:
    assert load_settings(file).output.is_absolute()
    values = [line for line in file.read_text().splitlines() if re.match(r"\s*\w+: *[^ #]", line)]
    assert [line for line in values if "#" not in line] == []


def test_unknown_keys_are_listed_at_once_with_their_place() -> None:
    with pytest.raises(ConfigError) as error:
        settings(trainings={}, training={"max_step": 3, "max_steps": 3}, tokenizer={"size": 4})
    assert str(error.value) == "unknown key trainings; unknown key training.max_step; unknown key tokenizer.size"


def test_missing_keys_are_named() -> None:
    with pytest.raises(ConfigError, match="missing output; missing training"):
        settings_from_dict({}, Path())
    with pytest.raises(ConfigError, match="the file must be keys and values, not None"):
        settings_from_dict(None, Path())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"max_steps": "many"}}, "training.max_steps must be a whole number, not 'many'"),
        ({"training": {"max_steps": True}}, "training.max_steps must be a whole number, not True"),
        ({"training": {"max_steps": 1, "lr": "1e-3"}}, "YAML reads 1e-3 as text, write 1.0e-3"),
        ({"training": {"max_steps": 1, "schedule": "step"}}, "training.schedule must be one of paper, inverse_sqrt"),
        ({"training": {"max_steps": 1, "metrics": ["rouge"]}}, "training.metrics must be one of bleu, chrf"),
        ({"training": {}}, "training needs max_steps, max_minutes or both"),
        ({"training": {"max_minutes": 1, "schedule": "cosine"}}, "falls towards max_steps, which is not set"),
        ({"training": {"max_steps": 1, "max_tokens": 0}}, "training.max_tokens must be at least 1"),
        ({"training": {"max_steps": 1, "average_last": 3}}, "average_last 3 needs keep_last of at least 3"),
        ({"training": {"max_steps": 1, "select_by": "bleu", "metrics": []}}, "bleu is not among training.metrics"),
        ({"training": {"max_steps": 1, "label_smoothing": 1.0}}, r"label_smoothing must be in \[0, 1\)"),
        ({"data": {"train": ["a", "b", "c"], "valid": "v"}}, "or one TSV file, not 3 files"),
        ({"data": {"train": ["a", "b"]}}, "data.valid must be"),
        ({"data": {"dates": {}, "train": "a"}}, "data.dates and data files exclude each other"),
        ({"data": {"dates": {"last_year": 2051}}}, "must be 1 to 100 years"),
        ({"model": {"preset": "tiny"}}, "model.preset must be one of paper-base"),
        ({"model": {"changes": {"d_modle": 3}}}, "unknown key d_modle"),
        ({"model": {"changes": {"source_vocab_size": 3}}}, "source_vocab_size comes from the tokenizers"),
        ({"model": {"preset": "paper-base"}, "tokenizer": {"shared": False}}, "needs tokenizer.shared: true"),
        ({"tokenizer": {"target_vocab_size": 100}}, "need shared: false"),
        ({"generation": {"beams": 4}}, "generation: unknown generation option beams"),
        ({"output": 3}, "output must be a path, not 3"),
        ({"output": "${TFEXPORT_SURELY_UNSET}/x"}, "TFEXPORT_SURELY_UNSET, which is not set"),
    ],
)
def test_wrong_values_are_refused_with_their_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**changes)


def test_several_contradictions_come_together() -> None:
    with pytest.raises(ConfigError, match=r"training\.lr must be positive.*tokenizer\.vocab_size must be at least 8"):
        settings(training={"max_steps": 1, "lr": -1}, tokenizer={"vocab_size": 3})


def test_paths_are_relative_to_the_file_and_variables_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTS", "/texts")
    monkeypatch.delenv("NOWHERE", raising=False)
    data = {"train": ["${TEXTS}/a", "${NOWHERE:-sub}/b"], "valid": "v.tsv"}
    read = settings(data=data)
    assert read.output == Path("/base/run")
    assert read.data is not None
    assert read.data.train == (Path("/texts/a"), Path("/base/sub/b"))
    assert read.data.valid == (Path("/base/v.tsv"),)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml: no such file"):
        load_settings(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_text("a: [1\nb: }")
    with pytest.raises(ConfigError, match=r"x\.yaml: cannot be read as YAML") as error:
        load_settings(tmp_path / "x.yaml")
    assert "\n" not in str(error.value)
