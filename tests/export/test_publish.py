"""A bundle appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest

from tfexport.errors import ExportError, ParityError
from tfexport.export import ExportOptions, export_bundle
from tfexport.publish import published_when_complete
from tfexport_train.checkpoint import Checkpoint


def make(target: Path, content: str, **options: bool) -> None:
    with published_when_complete(target, options.get("as_zip", False), options.get("force", False)) as folder:
        (folder / "bundle.json").write_text(content)


def test_a_new_bundle_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    make(tmp_path / "b", "old")
    make(tmp_path / "b", "new")
    assert (tmp_path / "b" / "bundle.json").read_text() == "new"
    assert os.listdir(tmp_path) == ["b"]


def test_systems_without_an_exchange_replace_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfexport.publish._exchange", lambda one, other: False)
    make(tmp_path / "b", "old")
    make(tmp_path / "b", "new")
    assert (tmp_path / "b" / "bundle.json").read_text() == "new"
    assert os.listdir(tmp_path) == ["b"]


def test_an_error_leaves_the_old_bundle_and_nothing_else(tmp_path: Path) -> None:
    make(tmp_path / "b", "old")
    publishing = published_when_complete(tmp_path / "b", as_zip=False, force=False)
    (publishing.__enter__() / "bundle.json").write_text("half")
    publishing.__exit__(RuntimeError, RuntimeError("stop"), None)
    assert (tmp_path / "b" / "bundle.json").read_text() == "old"
    assert os.listdir(tmp_path) == ["b"]


def test_other_folders_are_not_replaced_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("cat")
    with pytest.raises(ExportError, match="not a bundle"):
        make(tmp_path / "photos", "x")
    assert (tmp_path / "photos" / "cat.jpg").exists()
    make(tmp_path / "photos", "x", force=True)
    assert os.listdir(tmp_path / "photos") == ["bundle.json"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    make(tmp_path / "b", "x")
    assert (tmp_path / "b" / "bundle.json").read_text() == "x"


def test_a_bundle_that_fails_parity_is_not_published(
    checkpoint_of: Callable[[str], Checkpoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_it(model: ir.Model) -> tuple[ir.Model, bool]:
        for value in model.graph.initializers.values():
            if value.const_value is not None and len(value.const_value.shape) == 2:
                changed = value.const_value.numpy().copy()
                changed[0, 0] += 0.5
                value.const_value = ir.tensor(changed, name=value.name)
        return model, True

    monkeypatch.setattr("tfexport.graphs.float_graphs._PASSES", (break_it,))
    with pytest.raises(ParityError, match=r"parity failed: .* differs by .* nothing was published") as caught:
        export_bundle(checkpoint_of("paper"), tmp_path / "b", ExportOptions())
    assert caught.value.exit_status == 3
    assert not caught.value.report.passed
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("opset", [11, 17, 99])
def test_an_opset_that_cannot_be_written_is_refused_before_any_work(
    opset: int, checkpoint_of: Callable[[str], Checkpoint], tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match="choose 18 to"):
        export_bundle(checkpoint_of("paper"), tmp_path / "b", ExportOptions(opset=opset))
    assert os.listdir(tmp_path) == []


def test_the_newest_opset_works_as_a_zip(checkpoint_of: Callable[[str], Checkpoint], tmp_path: Path) -> None:
    from tfexport.formats.onnx_pair import OPSETS
    from tfexport_runtime.translator import Translator

    newest = OPSETS.stop - 1
    report = export_bundle(checkpoint_of("paper"), tmp_path / "b.zip", ExportOptions(opset=newest, zip=True))
    assert report.manifest.opset == newest
    assert report.parity.passed
    assert len(Translator(tmp_path / "b.zip").translate(["w5 w6", ""])) == 2
