"""Fixtures that several subjects share: a tiny model with random weights, its bundle, and the folder of real data."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest


def _stay_on_one_core() -> None:
    """Parallel test workers with as many threads each as there are cores would only wait for one another."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


_stay_on_one_core()  # before torch counts the cores

import torch  # noqa: E402
from filelock import FileLock  # noqa: E402

from tfexport.export import ExportOptions, export_bundle  # noqa: E402
from tfexport.graphs.signature import FixedShape  # noqa: E402
from tfexport_train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint  # noqa: E402
from tfexport_train.config import EncoderDecoderConfig  # noqa: E402
from tfexport_train.model import EncoderDecoder  # noqa: E402
from tfexport_train.settings import TokenizerSettings  # noqa: E402
from tfexport_train.tokenization import train_tokenizers  # noqa: E402

ROOT = Path(__file__).parent.parent

TEXT = "ein kleiner hund läuft schnell über die grüne wiese und spielt mit dem roten ball am see"


@pytest.fixture(scope="session")
def tiny_checkpoint_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2 encoder layers, 1 decoder layer, d_model 32, 64 positions, random weights; one SentencePiece of 400 pieces."""
    return made_once(tmp_path_factory, "tiny.pt", lambda path: save_checkpoint(_tiny_checkpoint(), path))


@pytest.fixture(scope="session")
def tiny_checkpoint(tiny_checkpoint_file: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint_file)


@pytest.fixture(scope="session")
def tiny_bundle(tiny_checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its bundle, fused operators. Not to be changed: copy it first."""

    def export(path: Path) -> None:
        export_bundle(tiny_checkpoint, path, ExportOptions(name="tiny"))

    return made_once(tmp_path_factory, "tiny-bundle", export)


@pytest.fixture(scope="session")
def tiny_portable_bundle(tiny_checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in standard operators, with a growing cache."""

    def export(path: Path) -> None:
        export_bundle(tiny_checkpoint, path, ExportOptions(name="tiny", operators="portable"))

    return made_once(tmp_path_factory, "tiny-portable", export)


def with_ids(checkpoint: Checkpoint) -> Checkpoint:
    """The same with ids of its own around a text and before a translation, as language codes are."""
    source, target = checkpoint.source, checkpoint.target
    return replace(
        checkpoint,
        source=replace(source, prefix_ids=(5,), suffix_ids=(7,)),
        target=replace(target, prefix_ids=(8, 9)),
    )


@pytest.fixture(scope="session")
def tiny_single_bundle(tiny_checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One graph with the search inside, of the tiny model with ids of its own. With all outputs on request."""

    def export(path: Path) -> None:
        options = ExportOptions(format="single", name="tiny", attention=True, encoder_state=True)
        export_bundle(with_ids(tiny_checkpoint), path, options)

    return made_once(tmp_path_factory, "tiny-single", export)


@pytest.fixture(scope="session")
def tiny_fixed_bundle(tiny_checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with numbers for shapes: 48 source and 40 target positions, 4 rows. With all outputs on request."""

    def export(path: Path) -> None:
        shape = FixedShape(48, 40, 4)
        options = ExportOptions(static=shape, name="tiny", attention=True, attention_heads=(2, 0), encoder_state=True)
        export_bundle(tiny_checkpoint, path, options)

    return made_once(tmp_path_factory, "tiny-fixed", export)


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A file or folder that is made by the first worker process that wants it and shared by all."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{path}.lock"):
        if not path.exists():
            make(path)
    return path


def _tiny_checkpoint() -> Checkpoint:
    words = TEXT.split()
    lines = [" ".join(words[i % len(words)] for i in range(start, start + 7)) for start in range(200)]
    source, target = train_tokenizers([(line, line.upper()) for line in lines], TokenizerSettings(vocab_size=400))
    size = source.tokenizer(3).size
    config = EncoderDecoderConfig(
        size, size, d_model=32, num_heads=4, num_encoder_layers=2, num_decoder_layers=1, d_ff=64, max_positions=64
    )
    torch.manual_seed(1)
    return Checkpoint(config, EncoderDecoder(config).state_dict(), source, target)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Real text that is not part of the repository."""
    folder = Path(os.environ.get("TFEXPORT_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("needs the data folder: set TFEXPORT_DATA or put it at ../shared/data")
    return folder
