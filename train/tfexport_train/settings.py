"""The annotated YAML file of a training run, as one frozen tree. Imports nothing heavy."""

from __future__ import annotations

import os
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tfexport_runtime.errors import OptionError
from tfexport_runtime.options import TranslationOptions
from tfexport_train.config import PRESETS, EncoderDecoderConfig
from tfexport_train.errors import ConfigError
from tfexport_train.yaml_file import read_yaml

Metric = Literal["bleu", "chrf", "exact_match"]
ScheduleName = Literal["paper", "inverse_sqrt", "constant", "linear", "cosine"]


@dataclass(frozen=True)
class DatesSettings:
    """The built-in task: dates in several languages and formats to ISO 8601. Needs Babel, no file."""

    train_pairs: int = 40_000
    valid_pairs: int = 500
    test_pairs: int = 1_000
    seed: int = 1
    first_year: int = 1950  # at most 100 years: a two-digit year must name one of them
    last_year: int = 2049


@dataclass(frozen=True)
class DataSettings:
    """Each part is two files of equal line counts (source, target), or one file with one TAB a line."""

    train: tuple[Path, ...] = ()
    valid: tuple[Path, ...] = ()
    test: tuple[Path, ...] = ()  # scored once, at the end; may be left out
    dates: DatesSettings | None = None  # instead of files


@dataclass(frozen=True)
class TokenizerSettings:
    """SentencePiece, trained on the training text as part of the run."""

    model_type: Literal["bpe", "unigram", "char", "word"] = "bpe"
    vocab_size: int = 8000  # of each side; an upper limit for char and word
    shared: bool = True  # one model for both languages
    target_model_type: Literal["bpe", "unigram", "char", "word"] | None = None  # not shared: None is as the source
    target_vocab_size: int | None = None  # not shared: None is as the source
    byte_fallback: bool = True  # bpe and unigram: unknown characters become their UTF-8 bytes, never <unk>
    character_coverage: float = 1.0  # share of the text's characters that get a piece; 0.9995 for Chinese or Japanese
    max_sentences: int = 2_000_000  # lines it learns from, drawn at random from more


@dataclass(frozen=True)
class ModelSettings:
    """A named form with changes; the vocabulary sizes come from the tokenizers."""

    preset: str = "modern-small"
    changes: dict[str, Any] = field(default_factory=dict)  # names of EncoderDecoderConfig

    def config(self, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoderConfig:
        return EncoderDecoderConfig.preset(self.preset, source_vocab_size, target_vocab_size, self.changes)


@dataclass(frozen=True)
class TrainingSettings:
    # Size of an update
    max_tokens: int = 4096  # a batch: sentences * (padded source length + padded target length)
    accumulation: int = 1  # batches an update

    # End: whichever comes first; at least one of the first two is needed
    max_steps: int | None = None  # updates
    max_minutes: float | None = None  # wall-clock time of the training loop, over all resumed parts
    patience: int | None = None  # validations without a better result

    # Optimizer: Adam(0.9, 0.98, 1e-9)
    schedule: ScheduleName = "inverse_sqrt"  # learning rate by step, counted from 1; see schedule.py
    warmup: int = 2000  # steps
    lr: float = 1e-3  # the peak, at the end of the warm-up; not used by `paper`
    factor: float = 1.0  # `paper` only
    clip: float | None = 1.0  # largest gradient norm; None: off
    label_smoothing: float = 0.1
    seed: int = 1

    # Validation
    validate_every: int = 500  # steps
    metrics: tuple[Metric, ...] = ("bleu", "chrf")  # of greedy translations, beside the loss
    metric_sentences: int | None = 500  # the first n validation sentences are translated; None: all
    select_by: Literal["loss", "bleu", "chrf", "exact_match"] = "loss"  # what makes a checkpoint the best

    # What is kept
    keep_last: int = 1  # snapshots in checkpoints/, one for each validation
    average_last: int = 0  # at the end the mean of that many snapshots is tried; 0: off
    log_every: int = 50  # steps between lines of metrics.jsonl

    # Machine
    device: str = "auto"  # auto: cuda when there is one, else cpu
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 autocast on CUDA, fp32 elsewhere
    threads: int | None = None  # CPU threads of PyTorch; None: its own default


@dataclass(frozen=True)
class TrainSettings:
    output: Path  # folder of the run
    training: TrainingSettings
    data: DataSettings | None = None  # None: a shape for `tfexport init`, which needs no text
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    generation: dict[str, Any] = field(default_factory=dict)  # names of TranslationOptions, written to the checkpoint


def load_settings(path: Path) -> TrainSettings:
    """Paths inside are relative to the file's folder; `${NAME}` and `${NAME:-default}` are environment variables.

    Raises ConfigError with every unknown key and wrong value at once.
    """
    content = read_yaml(path)
    try:
        return settings_from_dict(content, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def settings_from_dict(content: object, folder: Path) -> TrainSettings:
    """`content` as YAML gives it. Raises ConfigError."""
    reader = _Reader(folder)
    settings = reader.read(TrainSettings, content, "")
    if reader.problems or settings is None:
        raise ConfigError("; ".join(reader.problems))
    assert isinstance(settings, TrainSettings)
    check_settings(settings)
    return settings


def check_settings(settings: TrainSettings) -> None:
    """All contradictions at once. Raises ConfigError."""
    problems = [*_data_problems(settings.data), *_training_problems(settings.training), *_model_problems(settings)]
    if problems:
        raise ConfigError("; ".join(problems))


class _Reader:
    """Turns plain values into dataclasses by their type hints, and notes every problem with its place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []

    def read(self, hint: Any, value: Any, place: str) -> Any:
        if is_dataclass(hint):
            return self._dataclass(hint, value, place)
        origin, args = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            inner = next(a for a in args if a is not type(None))
            return None if value is None else self.read(inner, value, place)
        if origin is Literal:
            return self._checked(value in args, value, place, f"one of {', '.join(args)}")
        if origin is tuple:
            return self._sequence(args[0], value, place)
        if origin is dict:
            return self._checked(isinstance(value, dict), value, place, "keys and values")
        return self._scalar(hint, value, place)

    def _dataclass(self, cls: Any, value: Any, place: str) -> Any:
        if not isinstance(value, Mapping):
            return self._checked(False, value, place or "the file", "keys and values")
        hints, known = get_type_hints(cls), {f.name: f for f in fields(cls)}
        self.problems += [f"unknown key {_joined(place, str(k))}" for k in value if k not in known]
        required = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
        missing = [n for n in required if n not in value]
        self.problems += [f"missing {_joined(place, n)}" for n in missing]
        read = {n: self.read(hints[n], v, _joined(place, n)) for n, v in value.items() if n in known}
        return None if self.problems else cls(**read)

    def _sequence(self, hint: Any, value: Any, place: str) -> tuple[Any, ...]:
        items = value if isinstance(value, list) else [value]
        return tuple(self.read(hint, item, place) for item in items)

    def _scalar(self, hint: Any, value: Any, place: str) -> Any:
        if hint is Path:
            if self._checked(isinstance(value, str) and value != "", value, place, "a path") is None:
                return None
            return self.folder / Path(self._expanded(value, place)).expanduser()
        if hint is float:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return float(value) if self._checked(number, value, place, "a number") is not None else None
        names = {int: "a whole number", bool: "true or false", str: "text"}
        return self._checked(type(value) is hint, value, place, names[hint])

    def _checked(self, fine: bool, value: Any, place: str, wanted: str) -> Any:
        if not fine:
            hint = "; YAML reads 1e-3 as text, write 1.0e-3" if isinstance(value, str) and "number" in wanted else ""
            self.problems.append(f"{place} must be {wanted}, not {value!r}{hint}")
            return None
        return value

    def _expanded(self, text: str, place: str) -> str:
        def variable(match: re.Match[str]) -> str:
            name: str = match.group(1)
            found: str | None = os.environ.get(name, match.group(2))
            if found is None:
                self.problems.append(f"{place} uses the environment variable {name}, which is not set")
                return ""
            return found

        return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", variable, text)


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _data_problems(data: DataSettings | None) -> list[str]:
    if data is None:
        return []
    problems = []
    if data.dates is not None:
        d = data.dates
        if data.train or data.valid or data.test:
            problems.append("data.dates and data files exclude each other")
        if min(d.train_pairs, d.valid_pairs, d.test_pairs) < 1:
            problems.append("data.dates: each part needs at least one pair")
        if not 1583 <= d.first_year <= d.last_year <= d.first_year + 99:
            problems.append("data.dates: first_year to last_year must be 1 to 100 years, from 1583 on")
        return problems
    for name in ("train", "valid", "test"):
        count = len(getattr(data, name))
        if count not in (1, 2) and (count or name != "test"):
            problems.append(f"data.{name} must be [source file, target file] or one TSV file, not {count} files")
    return problems


def _training_problems(t: TrainingSettings) -> list[str]:
    rules = [
        (t.max_steps is not None or t.max_minutes is not None, "training needs max_steps, max_minutes or both"),
        (
            t.schedule not in ("linear", "cosine") or t.max_steps is not None,
            f"training.schedule {t.schedule} falls towards max_steps, which is not set",
        ),
        (0 <= t.label_smoothing < 1, f"training.label_smoothing must be in [0, 1), not {t.label_smoothing}"),
        (t.clip is None or t.clip > 0, f"training.clip must be positive or null, not {t.clip}"),
        (t.lr > 0, f"training.lr must be positive, not {t.lr}"),
        (t.factor > 0, f"training.factor must be positive, not {t.factor}"),
        (t.max_minutes is None or t.max_minutes > 0, f"training.max_minutes must be positive, not {t.max_minutes}"),
        (t.seed >= 0, f"training.seed must not be negative, not {t.seed}"),
        (t.average_last >= 0, f"training.average_last must not be negative, not {t.average_last}"),
        (
            t.average_last <= t.keep_last,
            f"training.average_last {t.average_last} needs keep_last of at least {t.average_last}",
        ),
        (
            t.select_by == "loss" or t.select_by in t.metrics,
            f"training.select_by {t.select_by} is not among training.metrics",
        ),
    ]
    problems = [message for fine, message in rules if not fine]
    names = ("max_tokens", "accumulation", "max_steps", "patience", "warmup", "validate_every", "metric_sentences")
    for name in (*names, "keep_last", "log_every", "threads"):
        value = getattr(t, name)
        if value is not None and value < 1:
            problems.append(f"training.{name} must be at least 1, not {value}")
    return problems


def _model_problems(s: TrainSettings) -> list[str]:
    problems = []
    t = s.tokenizer
    if s.model.preset not in PRESETS:
        problems.append(f"model.preset must be one of {', '.join(PRESETS)}, not {s.model.preset!r}")
    else:
        problems += _config_problems(s)
    if t.shared and (t.target_vocab_size is not None or t.target_model_type is not None):
        problems.append("tokenizer.target_vocab_size and target_model_type need shared: false")
    if min(t.vocab_size, t.target_vocab_size or t.vocab_size) < 8:
        problems.append("tokenizer.vocab_size must be at least 8")
    if not 0.9 <= t.character_coverage <= 1:
        problems.append(f"tokenizer.character_coverage must be in [0.9, 1], not {t.character_coverage}")
    try:
        TranslationOptions().with_changes(s.generation)
    except (OptionError, TypeError) as error:
        problems.append(f"generation: {error}")
    return problems


def _config_problems(s: TrainSettings) -> list[str]:
    """The model's own rules, tried with the sizes that the tokenizers may get at most."""
    fixed = {"source_vocab_size", "target_vocab_size", "pad_id", "start_id", "eos_id", "unk_id"} & set(s.model.changes)
    if fixed:
        return [f"model.changes: {', '.join(sorted(fixed))} comes from the tokenizers"]
    t = s.tokenizer
    try:
        config = s.model.config(t.vocab_size, t.vocab_size)
    except ConfigError as error:
        return [str(error)]
    if config.share_embeddings and not t.shared:
        return ["model share_embeddings needs tokenizer.shared: true"]
    return []
