"""`ckpt.pt`: weights, configuration and tokenizers in one file that loads without running code.

Layout (a dict of plain values and tensors, read with weights_only=True):

    format          "tfexport-checkpoint"
    format_version  1
    config          EncoderDecoderConfig as a dict
    source, target  {"kind", "model" (bytes of the tokenizer file), "add_bos", "add_eos", "prefix_ids", "suffix_ids"}
    generation      default generation options, by the names of the runtime's TranslationOptions
    weights         state_dict of EncoderDecoder

The state of training (optimizer, step, random generators) lies beside it in a file of its own.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from io import FileIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tfexport_runtime.tokenizer import TOKENIZER_KINDS, Tokenizer, load_tokenizer
from tfexport_train.atomic import replaced_when_complete as replaced_when_complete
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.errors import CheckpointError, ConfigError
from tfexport_train.mapped_memory import LettingGo, mapped_spans
from tfexport_train.model import EncoderDecoder

FORMAT = "tfexport-checkpoint"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class TextSide:
    """How one language's text becomes ids."""

    kind: str  # one of TOKENIZER_KINDS
    model: bytes  # the tokenizer's own file
    add_bos: bool = False  # source only: the start token before the text
    add_eos: bool = True  # source only: the end token behind it
    prefix_ids: tuple[int, ...] = ()  # source: before the text; target: what the decoder reads behind the start token
    suffix_ids: tuple[int, ...] = ()  # source only: behind the text and the end token

    def tokenizer(self, unk_id: int) -> Tokenizer:
        return load_tokenizer(self.kind, self.model, unk_id)


@dataclass(frozen=True)
class Checkpoint:
    """A model with all that is needed to run it on text."""

    config: EncoderDecoderConfig
    weights: dict[str, Tensor]
    source: TextSide
    target: TextSide
    generation: dict[str, Any] = field(default_factory=dict)

    def build_model(self) -> EncoderDecoder:
        """The module with these weights, in eval mode. Raises CheckpointError naming every weight that does not fit."""
        model = EncoderDecoder(self.config)
        self._check_shapes(model)
        model.load_state_dict(self.weights)
        return model.eval()

    def view_model(self) -> EncoderDecoder:
        """The module over these very tensors, not over copies: to compute with, not to train. Raises as above."""
        with torch.device("meta"):
            model = EncoderDecoder(self.config)
        self._check_shapes(model)
        model.load_state_dict({name: t.float() for name, t in self.weights.items()}, assign=True)
        model.tie()
        return model.eval()

    def _check_shapes(self, model: EncoderDecoder) -> None:
        expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
        found = {name: tuple(t.shape) for name, t in self.weights.items()}
        problems = [f"missing {name} {expected[name]}" for name in sorted(expected.keys() - found.keys())]
        problems += [f"unexpected {name} {found[name]}" for name in sorted(found.keys() - expected.keys())]
        problems += [
            f"{name} is {found[name]}, expected {shape}"
            for name, shape in expected.items()
            if name in found and found[name] != shape
        ]
        if problems:
            raise CheckpointError("weights do not fit the configuration: " + _shortened(problems))


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Writes atomically: an interrupted save leaves the old file or the new one."""
    weights = {name: t.detach().cpu() for name, t in checkpoint.weights.items()}
    save_atomically(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "config": checkpoint.config.to_dict(),
            "source": _to_dict(checkpoint.source),
            "target": _to_dict(checkpoint.target),
            "generation": dict(checkpoint.generation),
            "weights": weights,
        },
        path,
        weights.values(),
    )


def load_checkpoint(path: Path) -> Checkpoint:
    """Raises CheckpointError, in one line, for anything that is not a whole checkpoint of ours."""
    content = load_untrusted(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not a tfexport checkpoint; make one with `tfexport train` or `tfexport init`")
    version = content.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: checkpoint format {version} is newer than this version reads ({FORMAT_VERSION}); upgrade tfexport"
        )
    try:
        return Checkpoint(
            EncoderDecoderConfig.from_dict(content["config"]),
            _weights(content["weights"]),
            read_text_side(content["source"]),
            read_text_side(content["target"]),
            dict(content["generation"]),
        )
    except (KeyError, TypeError, ConfigError) as error:
        raise CheckpointError(f"{path}: damaged checkpoint: {error}") from error


def load_untrusted(path: Path, allowed: Sequence[Any] = (), mapped: bool = False) -> Any:
    """torch.load that never runs code from the file. Raises CheckpointError.

    allowed: classes that may occur beside tensors and plain values, such as argparse.Namespace.
    mapped: tensors stay in the file until they are used, where the file is of a kind that allows it.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: no such file")
    if path.is_dir():
        raise CheckpointError(f"{path}: is a folder, expected a checkpoint file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch comments on old and foreign files; what matters is raised below
            with torch.serialization.safe_globals(list(allowed)):
                mmap = mapped and zipfile.is_zipfile(path)
                return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        if zipfile.is_zipfile(path) or "Unsupported" in str(error) or "GLOBAL" in str(error):
            raise CheckpointError(
                f"{path}: refused: the file wants to run code or holds objects that are not tensors and plain values; "
                "save a state_dict where the model's class is known: torch.save(model.state_dict(), 'weights.pt')"
            ) from error
        raise CheckpointError(f"{path}: not a PyTorch file, or a damaged one") from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise CheckpointError(f"{path}: damaged or cut short: {_first_line(error)}") from error


def save_atomically(content: object, path: Path, mapped: Iterable[Tensor] = ()) -> None:
    """torch.save that leaves the old file or the new one. Raises CheckpointError, for a full disk for example.

    mapped: tensors of the content that may lie in a file, and then need not all be in memory at once.
    """
    spans = mapped_spans(mapped)
    try:
        with replaced_when_complete(path) as temporary, LettingGo(FileIO(temporary, "wb"), spans) as file:
            torch.save(content, file)
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError from the file's OSError
        cause = error if isinstance(error, OSError) else error.__context__ or error
        reason = getattr(cause, "strerror", None) or _first_line(cause)
        raise CheckpointError(
            f"{path}: could not be written ({reason}); free space or choose another folder. An older file is untouched"
        ) from error


def _to_dict(side: TextSide) -> dict[str, Any]:
    return {f.name: getattr(side, f.name) for f in fields(side)}


def read_text_side(values: Mapping[str, Any]) -> TextSide:
    """From a dict of a file. Raises TypeError for what is not one."""
    side = TextSide(**values)
    if side.kind not in TOKENIZER_KINDS or not isinstance(side.model, bytes):
        raise TypeError(f"tokenizer of kind {side.kind!r}")
    if not isinstance(side.prefix_ids, tuple) or not isinstance(side.suffix_ids, tuple):
        raise TypeError("prefix_ids or suffix_ids that are not tuples")
    if not all(type(i) is int for i in side.prefix_ids + side.suffix_ids):
        raise TypeError("prefix_ids or suffix_ids that are not ids")
    return side


def _weights(values: object) -> dict[str, Tensor]:
    if not isinstance(values, dict):
        raise TypeError(f"weights in a {type(values).__name__}")
    wrong = [name for name, t in values.items() if not isinstance(t, Tensor)]
    if wrong:
        raise TypeError(f"weights that are not tensors: {_shortened(wrong)}")
    return dict(values)


def _shortened(items: list[str], limit: int = 6) -> str:
    more = f"; and {len(items) - limit} more" if len(items) > limit else ""
    return "; ".join(items[:limit]) + more


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
