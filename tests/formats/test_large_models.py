"""Weights in several files: none larger than it may be, and above 2 GB altogether."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from tests.cli.conftest import Cli, cli  # noqa: F401  (a fixture)
from tests.conftest import made_once
from tfexport.cli.values import byte_count
from tfexport.export import ExportOptions, export_bundle
from tfexport.weights import write_shared_weights
from tfexport_runtime.bundle import read_bundle
from tfexport_runtime.errors import BundleError
from tfexport_runtime.session import SessionOptions
from tfexport_runtime.translator import Translator
from tfexport_train.checkpoint import Checkpoint

LIMIT = 30_000  # bytes of a file; the table of the tiny model has more
TEXTS = ["ein kleiner hund", "über die grüne wiese"]


@pytest.fixture(scope="session")
def sharded(tiny_checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in small files, with every output on request. Verified, as it was published."""
    options = ExportOptions(
        max_shard_bytes=LIMIT, attention=True, attention_layers=(0,), attention_heads=(1, 3), encoder_state=True
    )
    return made_once(tmp_path_factory, "tiny-sharded", lambda path: export_bundle(tiny_checkpoint, path, options))


def test_files_of_weights_are_numbered_listed_and_no_larger_than_asked_but_for_a_single_tensor(
    sharded: Path, tiny_bundle: Path
) -> None:
    manifest = read_bundle(sharded).manifest
    count = len(manifest.weights)
    assert count > 3
    assert list(manifest.weights) == [f"weights-{i:05}-of-{count:05}.bin" for i in range(1, count + 1)]
    config = manifest.model
    table = 4 * config.d_model * config.source_vocab_size
    sizes = [manifest.files[name].bytes for name in manifest.weights]
    assert {size for size in sizes if size > LIMIT} == {table}
    whole = read_bundle(tiny_bundle).manifest.files["weights.bin"].bytes
    assert abs(sum(sizes) - whole) <= 64 * count


def test_a_bundle_of_several_files_translates_as_one_of_a_single_file(sharded: Path, tiny_bundle: Path) -> None:
    several, single = (Translator(path, SessionOptions(threads=1)) for path in (sharded, tiny_bundle))
    options = single.default_options.with_changes({"beam_size": 4, "max_length": 12})
    assert several.translate(TEXTS, options) == single.translate(TEXTS, options)


def test_outputs_on_request_are_listed_and_others_do_not_mind(sharded: Path) -> None:
    graphs = read_bundle(sharded).manifest.graphs
    assert graphs["encoder"].outputs[-1].name == "encoder_state"
    assert graphs["encoder"].outputs[-1].shape == ("batch", "source", 32)
    assert graphs["decoder"].outputs[-1].name == "cross_attention.0"
    assert graphs["decoder"].outputs[-1].shape == ("rows", 2, "source")


@pytest.mark.parametrize("which", [0, -1])
def test_damage_in_any_file_is_noticed(which: int, sharded: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sharded, tmp_path / "bundle"))
    name = read_bundle(folder).manifest.weights[which]
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(BundleError, match=f"{name}: its content has changed"):
        read_bundle(folder)
    with pytest.raises(BundleError, match=f"{name}: its content has changed"):
        read_bundle(folder, weights_later=True).check_weights()


def test_inspect_sums_the_files_of_weights(sharded: Path, cli: Cli) -> None:  # noqa: F811
    manifest = read_bundle(sharded).manifest
    total = sum(manifest.files[name].bytes for name in manifest.weights)
    out = cli("inspect", sharded).out
    assert f"{total / 1e3:.1f} kB in {len(manifest.weights)} files" in out
    assert all(name in out for name in manifest.weights)
    assert f"{sum(info.bytes for info in manifest.files.values()) / 1e3:.1f} kB" in out


def test_a_tensor_that_both_graphs_read_is_stored_once_and_read_from_its_own_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(size).astype(np.float32) for size in (300, 700, 2000, 256)]
    first, second = (_model(tensors) for tensors in (arrays[:3], [*arrays[2:], arrays[0].reshape(3, 100)]))
    names = write_shared_weights([first, second], tmp_path, 4096)
    sizes = [(tmp_path / name).stat().st_size for name in names]
    assert sizes == [4 * 300 + 16 + 4 * 700, 4 * 2000, 4 * 256]
    found = [value.const_value for m in (first, second) for value in m.graph.initializers.values()]
    for tensor, array in zip(found, [*arrays[:3], *arrays[2:], arrays[0].reshape(3, 100)], strict=True):
        assert isinstance(tensor, ir.ExternalTensor)
        np.testing.assert_array_equal(tensor.numpy(), array)
        assert tensor.offset is not None
        assert tensor.offset % 64 == 0


def _model(arrays: list[np.ndarray]) -> ir.Model:
    values = []
    for i, array in enumerate(arrays):
        tensor = ir.tensor(array)
        values.append(ir.Value(name=f"w{i}", shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype)))
        values[-1].const_value = tensor
    return ir.Model(ir.Graph([], [], nodes=[], initializers=values), ir_version=9)


@pytest.mark.parametrize(("text", "count"), [("2GB", 2 * 10**9), ("500 MB", 5 * 10**8), ("1.5kB", 1500), ("70", 70)])
def test_sizes_are_in_thousands(text: str, count: int) -> None:
    assert byte_count(text) == count


@pytest.mark.parametrize("text", ["0", "2GiB", "-1MB", "much"])
def test_a_size_that_is_none_is_refused(text: str, cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    result = cli("export", tmp_path / "none.pt", "-o", tmp_path / "bundle", "--max-shard-size", text)
    assert result.status == 2
    assert "500MB" in result.err.replace("\n", " ")


@pytest.mark.skipif(
    "TFEXPORT_LARGE" not in os.environ, reason="takes 4 minutes and 6 GB of memory: set TFEXPORT_LARGE=1"
)
@pytest.mark.timeout(3600)
def test_a_model_above_2_gb_is_exported_loaded_and_verified(tmp_path: Path) -> None:
    """In a process of its own, whose peak of memory is what the system says it was."""
    script = Path(__file__).with_name("export_large_model.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path / "bundle"], capture_output=True, encoding="utf-8", check=True, timeout=3600
    )
    found = json.loads(done.stdout)
    manifest = read_bundle(tmp_path / "bundle").manifest
    sizes = [manifest.files[name].bytes for name in manifest.weights]
    assert sum(sizes) > 2**31
    assert len(sizes) == 2
    assert max(sizes) <= 2e9
    assert found["passed"]
    assert found["peak_bytes"] < 2.5 * sum(sizes)
