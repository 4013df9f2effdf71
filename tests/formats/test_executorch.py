"""The ExecuTorch format: the same tokens as PyTorch from its Python runtime and from a C++ program."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import made_once
from tests.formats.further_outputs import assert_further_outputs
from tfexport.errors import ExportError
from tfexport.export import ExportOptions, export_bundle
from tfexport.formats.executorch import FILE, MAX_BEAMS, MAX_SENTENCES
from tfexport.formats.registry import open_any
from tfexport.samples import random_sources
from tfexport_runtime.bundle import Bundle, read_bundle
from tfexport_runtime.errors import OptionError, UnavailableError
from tfexport_runtime.session import SessionOptions
from tfexport_train.checkpoint import Checkpoint
from tfexport_train.decoding import TorchStepModel

PROGRAM = Path(__file__).with_name("executorch")
is_missing = importlib.util.find_spec("executorch") is None
needs_executorch = pytest.mark.skipif(
    is_missing, reason='needs ExecuTorch: pip install "tfexport[executorch]", or make formats-test'
)


@pytest.fixture(scope="session")
def bundle(tiny_checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Verified, as it was published: numbers, tokens and scores of greedy and beam 4."""

    def export(path: Path) -> None:
        chosen = {"attention_layers": (0,), "attention_heads": (3, 1)}
        options = ExportOptions(format="executorch", name="tiny", attention=True, encoder_state=True, **chosen)
        export_bundle(tiny_checkpoint, path, options)

    return read_bundle(made_once(tmp_path_factory, "tiny-executorch", export))


@needs_executorch
@pytest.mark.timeout(1800)  # the compiler is slow
def test_one_program_holds_both_graphs_and_all_weights(bundle: Bundle) -> None:
    manifest = bundle.manifest
    assert {graph.file for graph in manifest.graphs.values()} == {FILE}
    assert manifest.weights == ()
    tables = 2 * 4 * manifest.model.d_model * manifest.model.source_vocab_size
    # Weights of both methods once, but for a table that is looked up in and multiplied by: XNNPACK has its own.
    assert manifest.files[FILE].bytes < 4 * manifest.model.parameters + tables + 50_000


@needs_executorch
@pytest.mark.timeout(1800)
def test_more_sentences_than_memory_was_planned_for_run_in_turns(bundle: Bundle, tiny_checkpoint: Checkpoint) -> None:
    model: Any = open_any(bundle, SessionOptions(threads=1))
    reference = TorchStepModel(tiny_checkpoint.build_model())
    sources = random_sources(tiny_checkpoint.config, MAX_SENTENCES + 3, 12, 4)
    ours, theirs = model.start(sources, 2), reference.start(sources, 2)
    for token in (1, 7, 30):
        tokens = np.full(2 * len(sources), token)
        found, ours = model.step_logits(tokens, ours)
        expected, theirs = reference.step_logits(tokens, theirs)
        np.testing.assert_allclose(found, expected, atol=1e-4)


@needs_executorch
@pytest.mark.timeout(1800)
def test_outputs_on_request_are_those_of_pytorch(bundle: Bundle, tiny_checkpoint: Checkpoint) -> None:
    texts = ["ein kleiner hund", "see"]
    assert_further_outputs(bundle, tiny_checkpoint, texts, {"cross_attention.0": 0}, (3, 1))


@needs_executorch
@pytest.mark.timeout(1800)
def test_more_beams_than_it_was_written_for_are_refused(bundle: Bundle) -> None:
    model: Any = open_any(bundle, SessionOptions(threads=1))
    cache = model.start([[5, 6]], MAX_BEAMS + 1)
    with pytest.raises(OptionError, match=f"at most {MAX_BEAMS} beams"):
        model.step_logits(np.ones(MAX_BEAMS + 1, np.int64), cache)


@needs_executorch
@pytest.mark.timeout(1800)
def test_a_cpp_program_finds_the_same_tokens(bundle: Bundle, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake and a C++ compiler")
    package = importlib.util.find_spec("executorch")
    assert package is not None
    assert package.submodule_search_locations is not None
    config = Path(package.submodule_search_locations[0]) / "lib" / "cmake" / "executorch"
    for command in (["-S", PROGRAM, "-B", tmp_path, f"-Dexecutorch_DIR={config}"], ["--build", tmp_path]):
        subprocess.run(["cmake", *command], check=True, capture_output=True)
    cases = [
        case
        for case in json.loads(bundle.read("golden.json"))["cases"]
        if case["options"].get("beam_size") == 1 and case["source_ids"]
    ]
    target = bundle.manifest.target
    numbers = (target.start_id, target.eos_id, cases[0]["options"]["max_length"], *target.never_generated)
    done = subprocess.run(
        [tmp_path / "greedy", bundle.path(FILE), *map(str, numbers)],
        input="".join(" ".join(map(str, case["source_ids"])) + "\n" for case in cases),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    found = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert found == [case["hypotheses"][0]["ids"] for case in cases]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ExportOptions(precision="int8"), "is in float32"),
        (ExportOptions(attention=True, attention_layers=(3,)), "no decoder layer 3"),
    ],
)
def test_what_it_does_not_have_is_refused_at_once(
    options: ExportOptions, words: str, tiny_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    stages: list[str] = []
    with pytest.raises(ExportError, match=words):
        export_bundle(tiny_checkpoint, tmp_path / "bundle", replace(options, format="executorch"), stages.append)
    assert stages == []


@pytest.mark.skipif(not is_missing, reason="ExecuTorch is here")
def test_without_executorch_it_says_what_to_install(tiny_checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"tfexport\[executorch\]"):
        export_bundle(tiny_checkpoint, tmp_path / "bundle", ExportOptions(format="executorch"))
