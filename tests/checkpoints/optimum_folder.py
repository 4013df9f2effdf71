"""Optimum's layout of a kept Hugging Face folder, exported once for all tests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import made_once
from tfexport.checkpoints import ImportOptions, open_checkpoint
from tfexport.layouts.optimum import OptimumOptions, export_optimum

ORIGINALS = Path(__file__).parent / "data" / "hugging_face"


def optimum_folder(tmp_path_factory: pytest.TempPathFactory, case: str) -> Path:
    """With the expected.json of its original in it."""
    original = ORIGINALS / case

    def export(path: Path) -> None:
        expected = json.loads((original / "expected.json").read_text(encoding="utf-8"))
        options = ImportOptions(ids=expected["texts"] is None, **expected["options"])
        checkpoint = open_checkpoint(original, options).checkpoint
        assert export_optimum(original, checkpoint, path, OptimumOptions()).parity.passed
        shutil.copyfile(original / "expected.json", path / "expected.json")

    return made_once(tmp_path_factory, f"{case}-optimum", export)
