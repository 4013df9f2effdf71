"""ckpt.pt: what goes in comes out, and nothing else is taken for one."""

from __future__ import annotations

import argparse
import pickle
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tfexport_train.checkpoint import Checkpoint, TextSide, load_checkpoint, load_untrusted, save_checkpoint
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.errors import CheckpointError
from tfexport_train.init import word_list
from tfexport_train.model import EncoderDecoder


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    torch.manual_seed(0)
    config = EncoderDecoderConfig(
        12, 12, d_model=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, d_ff=8, max_positions=16
    )
    source = replace(word_list(12), add_bos=True, prefix_ids=(5, 6), suffix_ids=(7,))
    target = replace(word_list(12), prefix_ids=(8,))
    return Checkpoint(config, EncoderDecoder(config).state_dict(), source, target, {"beam_size": 3})


@pytest.fixture
def file(checkpoint: Checkpoint, tmp_path: Path) -> Path:
    save_checkpoint(checkpoint, tmp_path / "ckpt.pt")
    return tmp_path / "ckpt.pt"


def test_everything_comes_back(checkpoint: Checkpoint, file: Path) -> None:
    loaded = load_checkpoint(file)
    assert replace(loaded, weights={}) == replace(checkpoint, weights={})
    assert loaded.weights.keys() == checkpoint.weights.keys()
    assert all(torch.equal(loaded.weights[n], w) for n, w in checkpoint.weights.items())
    assert not loaded.build_model().training


def test_a_checkpoint_of_before_there_were_ids_around_a_text_loads(file: Path) -> None:
    content = torch.load(file, weights_only=True)
    for side in ("source", "target"):
        for name in ("prefix_ids", "suffix_ids"):
            del content[side][name]
    torch.save(content, file)
    assert load_checkpoint(file).source == replace(word_list(12), add_bos=True)
    assert load_checkpoint(file).target == word_list(12)


def test_a_tied_table_is_stored_once_and_loads_tied(checkpoint: Checkpoint, file: Path) -> None:
    model = load_checkpoint(file).build_model()
    assert model.output.weight is model.target_embedding.tokens.weight
    distinct = {w.data_ptr(): w.numel() * 4 for w in checkpoint.weights.values()}
    assert file.stat().st_size < sum(distinct.values()) + 40_000


FORMS = {
    "paper": {},
    "relative": {"positions": "none", "relative_buckets": 8, "relative_max_distance": 16},
    "learned": {"positions": "learned"},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_model_over_the_weights_computes_the_same_and_copies_none(form: str) -> None:
    config = EncoderDecoderConfig(
        12,
        12,
        d_model=8,
        num_heads=2,
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_ff=8,
        max_positions=16,
        **FORMS[form],  # type: ignore[arg-type]
    )
    checkpoint = Checkpoint(config, EncoderDecoder(config).state_dict(), word_list(12), word_list(12))
    built, viewed = checkpoint.build_model(), checkpoint.view_model()
    source, target = torch.tensor([[5, 6, 7]]), torch.tensor([[1, 6]])
    assert torch.equal(viewed(source, target), built(source, target))
    assert not viewed.training
    assert viewed.output.weight is viewed.target_embedding.tokens.weight
    addresses = {weight.data_ptr() for weight in checkpoint.weights.values()}
    assert all(parameter.data_ptr() in addresses for parameter in viewed.parameters())


def test_a_model_over_weights_in_half_precision_computes_in_float32(checkpoint: Checkpoint) -> None:
    halved = replace(checkpoint, weights={name: w.half() for name, w in checkpoint.weights.items()})
    source, target = torch.tensor([[5, 6, 7]]), torch.tensor([[1, 6]])
    assert torch.equal(halved.view_model()(source, target), halved.build_model()(source, target))


def test_every_truncation_is_refused_in_one_line(file: Path) -> None:
    content = file.read_bytes()
    for length in [0, 1, 2, 10, 64, *range(100, len(content), len(content) // 25), len(content) - 1]:
        file.write_bytes(content[:length])
        with pytest.raises(CheckpointError) as error:
            load_checkpoint(file)
        assert "\n" not in str(error.value), length
        assert str(file) in str(error.value), length


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"PK\x03\x04", b"\x80\x02}q\x00.", b"\x00" * 1000, "ä".encode() * 50, pickle.dumps([1, 2])],
    ids=["empty", "text", "zip start", "empty pickle", "zeros", "utf-8", "list"],
)
def test_files_of_something_else_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(path)
    assert "\n" not in str(error.value)


def test_a_plain_state_dict_is_not_taken_for_a_checkpoint(checkpoint: Checkpoint, tmp_path: Path) -> None:
    torch.save(checkpoint.weights, tmp_path / "weights.pt")
    with pytest.raises(CheckpointError, match="not a tfexport checkpoint; make one with `tfexport train`"):
        load_checkpoint(tmp_path / "weights.pt")


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nothing\.pt: no such file"):
        load_checkpoint(tmp_path / "nothing.pt")
    with pytest.raises(CheckpointError, match="is a folder"):
        load_checkpoint(tmp_path)


class RunsCode:
    """Unpickling this writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.marker, "executed")


@pytest.mark.parametrize("by_torch", [True, False])
def test_a_pickle_with_code_is_refused_and_does_not_run(tmp_path: Path, by_torch: bool) -> None:
    marker, path = tmp_path / "marker", tmp_path / "evil.pt"
    if by_torch:
        torch.save({"format": RunsCode(marker)}, path)
    else:
        path.write_bytes(pickle.dumps(RunsCode(marker)))
    with pytest.raises(CheckpointError, match="refused: the file wants to run code"):
        load_checkpoint(path)
    assert not marker.exists()


def test_a_foreign_object_beside_weights_is_refused_with_a_way_out(tmp_path: Path) -> None:
    content = {"weights": {"a": torch.ones(2)}, "args": argparse.Namespace(lr=0.1), "step": np.float64(3.0)}
    torch.save(content, tmp_path / "foreign.pt")
    with pytest.raises(CheckpointError, match="not tensors and plain values; save a state_dict"):
        load_untrusted(tmp_path / "foreign.pt")


def test_weights_that_do_not_fit_are_all_named(checkpoint: Checkpoint) -> None:
    weights = dict(checkpoint.weights)
    del weights["encoder_norm.bias"]
    weights["extra.weight"] = torch.ones(3)
    weights["encoder_norm.weight"] = torch.ones(9)
    with pytest.raises(CheckpointError) as error:
        replace(checkpoint, weights=weights).build_model()
    message = str(error.value)
    assert "missing encoder_norm.bias (8,)" in message
    assert "unexpected extra.weight (3,)" in message
    assert "encoder_norm.weight is (9,), expected (8,)" in message


def test_a_newer_format_says_what_to_do(file: Path) -> None:
    content = torch.load(file, weights_only=True)
    torch.save({**content, "format_version": 2}, file)
    with pytest.raises(CheckpointError, match="format 2 is newer than this version reads"):
        load_checkpoint(file)


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"d_model": 8}},
        {"config": 3},
        {"source": {"kind": "magic", "model": b"x"}},
        {"source": {"kind": "words", "model": "text"}},
        {"source": {"kind": "words", "model": b"a", "prefix_ids": "text"}},
        {"target": {"kind": "words", "model": b"a", "suffix_ids": (0.5,)}},
        {"weights": {"a": "text"}},
        {"weights": [1]},
        {"generation": 3},
    ],
    ids=str,
)
def test_damaged_parts_are_refused(file: Path, change: dict[str, Any]) -> None:
    content = torch.load(file, weights_only=True)
    torch.save({**content, **change}, file)
    with pytest.raises(CheckpointError, match="damaged checkpoint"):
        load_checkpoint(file)


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Files beyond 2 kB cannot be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_error_and_the_old_file_stays(checkpoint: Checkpoint, file: Path, small_disk: None) -> None:
    before = file.read_bytes()
    with pytest.raises(CheckpointError, match=r"ckpt\.pt: could not be written") as error:
        save_checkpoint(checkpoint, file)
    assert "\n" not in str(error.value)
    assert file.read_bytes() == before
    assert [p.name for p in file.parent.iterdir()] == ["ckpt.pt"]


def test_a_text_side_remembers_its_start_and_end_tokens() -> None:
    assert TextSide("words", b"a") == TextSide("words", b"a", add_bos=False, add_eos=True)
