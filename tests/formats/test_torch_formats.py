"""The formats of PyTorch: what they hold, that they search as the runtime does, and what is refused.

Two tests compile native code for a minute: TFEXPORT_COMPILE=1, or `make cpp-check`, runs them as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import made_once
from tests.formats.further_outputs import assert_further_outputs
from tests.search.real_models import VOCAB, ragged_requests
from tests.search.real_models import tiny_checkpoint as small_checkpoint
from tfexport.errors import ExportError
from tfexport.export import ExportOptions, ExportReport, export_bundle
from tfexport.formats.registry import open_any
from tfexport.formats.torchscript import load_translator
from tfexport.graphs.flat_lists import candidates
from tfexport_runtime.bundle import Bundle, read_bundle
from tfexport_runtime.errors import BundleError
from tfexport_runtime.graph_pair import GrowingModel
from tfexport_runtime.hypothesis import Decoded
from tfexport_runtime.manifest import GraphFormat
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.search import search
from tfexport_runtime.session import SessionOptions
from tfexport_runtime.step_model import Request
from tfexport_train.checkpoint import Checkpoint
from tfexport_train.decoding import TorchStepModel
from tfexport_train.evaluate import search_target

HERE = Path(__file__).parent
compiled = pytest.mark.skipif(
    "TFEXPORT_COMPILE" not in os.environ, reason="compiles for a minute: set TFEXPORT_COMPILE=1, or run make cpp-check"
)

TEXTS = ["t5 t9 t4", "t8", "t30 t5"]
SEEN = {"cross_attention.1": 1, "cross_attention.0": 0}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam 4": {"beam_size": 4, "n_best": 4},
    "length penalty": {"beam_size": 3, "n_best": 2, "alpha": 0.6, "length_offset": 1},
    "longer is worse": {"beam_size": 4, "n_best": 4, "alpha": -0.5},
    "early stopping": {"beam_size": 2, "n_best": 2, "early_stopping": True},
    "short limit": {"beam_size": 5, "n_best": 5, "max_length_ratio": 1.0, "max_length_extra": 1},
    "more beams than tokens": {"beam_size": 50, "n_best": 50, "max_length": 3},
}


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    """It ends sentences now and then, would rather pad than anything else, and reads two tokens before it begins.

    Its projection is tied to the table of the target's tokens, and its GELU is an operator that older files knew in
    another form.
    """
    made = small_checkpoint("annotated")
    made.weights["output.weight"] = made.weights["target_embedding.tokens.weight"]
    made.weights["output.bias"][[made.config.pad_id, made.config.start_id]] = 20.0
    made.weights["output.bias"][made.config.eos_id] = 1.5
    config = replace(made.config, tie_output=True, activation="gelu_tanh")
    return replace(made, config=config, target=replace(made.target, prefix_ids=(7, 9)))


@pytest.fixture(scope="module")
def torchscript(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return exported(checkpoint, "torchscript", tmp_path_factory)


def exported(checkpoint: Checkpoint, form: GraphFormat, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Compared with PyTorch on the way: what differs is not written."""

    def export(path: Path) -> ExportReport:
        further = {"attention": True, "attention_layers": (1, 0), "attention_heads": (1,), "encoder_state": True}
        return export_bundle(checkpoint, path, ExportOptions(format=form, texts=TEXTS, **further))

    return read_bundle(made_once(tmp_path_factory, f"small-{form}", export))


@pytest.fixture(scope="module")
def programs(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return exported(checkpoint, "torch-export", tmp_path_factory)


@pytest.fixture(scope="module")
def scripted(torchscript: Bundle) -> Any:
    return load_translator(torchscript)


def sources(count: int) -> list[Request]:
    return [Request(request.source, (), request.index) for request in ragged_requests(count)]


def expected(checkpoint: Checkpoint, requests: Sequence[Request], options: dict[str, Any]) -> list[list[Decoded]]:
    config, side = checkpoint.config, checkpoint.target
    target = search_target(config, side.tokenizer(config.unk_id).size, side.prefix_ids)
    return search(TorchStepModel(checkpoint.build_model()), requests, TranslationOptions(**options), target)


def found(module: Any, requests: Sequence[Request], options: dict[str, Any]) -> list[list[tuple[Any, ...]]]:
    """(ids, whether it ended, score) of the hypotheses of a scripted search."""
    ids = torch.zeros(len(requests), max(len(r.source) for r in requests), dtype=torch.int64)
    mask = torch.zeros(ids.shape, dtype=torch.int32)
    for row, request in enumerate(requests):
        ids[row, : len(request.source)] = torch.tensor(request.source)
        mask[row, : len(request.source)] = 1
    result = module.beam(ids, mask, **options) if options else module.greedy(ids, mask)
    return [
        [
            (tuple(tokens[:length]), ended, score)
            for tokens, length, score, ended in zip(*sentence, strict=True)
            if score > -torch.inf
        ]
        for sentence in zip(*(field.tolist() for field in result), strict=True)
    ]


def assert_same(found: list[list[tuple[Any, ...]]], expected: list[list[Decoded]]) -> None:
    assert [[f[:2] for f in one] for one in found] == [
        [(d.ids, d.finish_reason == "eos") for d in other] for other in expected
    ]
    for one, other in zip(found, expected, strict=True):
        assert [f[2] for f in one] == pytest.approx([d.score for d in other], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_the_scripted_search_is_the_search_of_the_runtime(
    scripted: Any, checkpoint: Checkpoint, options: dict[str, Any]
) -> None:
    wanted = expected(checkpoint, sources(6), options)
    assert {d.finish_reason for one in wanted for d in one} == {"eos", "length"}
    assert_same(found(scripted, sources(6), options), wanted)


def test_a_sentence_gets_the_same_result_alone_and_among_others(scripted: Any) -> None:
    options = {"beam_size": 3, "n_best": 3}
    together = found(scripted, sources(6), options)
    for request, among_others in zip(sources(6)[:2], together, strict=False):
        (alone,) = found(scripted, [request], options)
        assert [f[:2] for f in alone] == [f[:2] for f in among_others]
        assert [f[2] for f in alone] == pytest.approx([f[2] for f in among_others], rel=1e-6, abs=1e-6)


def test_a_scripted_search_without_room_says_so(scripted: Any) -> None:
    with pytest.raises(torch.jit.Error, match="no room for a token"):
        found(scripted, sources(1), {"max_length_ratio": 0.0, "max_length_extra": 0})


def test_the_scripted_module_holds_each_weight_once_and_no_path(torchscript: Bundle, checkpoint: Checkpoint) -> None:
    assert [graph.file for graph in torchscript.manifest.graphs.values()] == ["model.pt", "model.pt"]
    tables = [weight.numpy().tobytes() for weight in checkpoint.weights.values() if len(weight) == VOCAB]
    with zipfile.ZipFile(torchscript.path("model.pt")) as archive:
        held = [archive.read(name) for name in archive.namelist() if "/constants/" in name]
        assert all(held.count(table) == 1 for table in tables)
        assert len(set(held)) == len(held)
        assert not any(str(HERE.parents[1]).encode() in archive.read(name) for name in archive.namelist())


def test_exported_programs_hold_their_own_weights_and_no_path(programs: Bundle) -> None:
    held = {name: _weights(programs.path(f"{name}.pt2")) for name in ("encoder", "decoder")}
    assert not held["encoder"] & held["decoder"]
    assert any("encoder_layers.0" in name for name in held["encoder"])
    assert any("cross_attention.k_proj" in name for name in held["encoder"])  # computed once a sentence
    assert any("cross_attention.q_proj" in name for name in held["decoder"])
    with zipfile.ZipFile(programs.path("decoder.pt2")) as archive:
        assert not any(str(HERE.parents[1]).encode() in archive.read(name) for name in archive.namelist())


@pytest.mark.parametrize("form", ["torchscript", "torch-export"])
def test_a_bundle_is_searched_step_by_step(form: str, checkpoint: Checkpoint, request: pytest.FixtureRequest) -> None:
    """By the runtime's search, which takes the graphs step by step, one sentence and several."""
    bundle = request.getfixturevalue({"torchscript": "torchscript", "torch-export": "programs"}[form])
    model = open_any(bundle, SessionOptions(threads=1))
    assert isinstance(model, GrowingModel)
    options = TranslationOptions(beam_size=3, n_best=3, no_repeat_ngram_size=2, max_length=6)
    target = bundle.manifest.search_target()
    reference = TorchStepModel(checkpoint.build_model())
    for requests in (sources(1), sources(4)):
        ours, theirs = (search(m, requests, options, target) for m in (model, reference))
        assert [[d.ids for d in one] for one in ours] == [[d.ids for d in one] for one in theirs]


@pytest.mark.parametrize("form", ["torchscript", "torch-export"])
def test_outputs_on_request_are_those_of_pytorch(
    form: str, checkpoint: Checkpoint, request: pytest.FixtureRequest
) -> None:
    bundle = request.getfixturevalue({"torchscript": "torchscript", "torch-export": "programs"}[form])
    assert_further_outputs(bundle, checkpoint, TEXTS, SEEN, (1,))


def test_equal_candidates_come_with_the_lower_id_first() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0, 1.0, 2.0, -1.0], [1.0] * 7])
    bias = torch.zeros(1, 7)
    bias[0, 1] = -torch.inf
    scores, ids = candidates(logits, bias, 4)
    assert ids.tolist() == [[3, 5, 2, 4], [0, 2, 3, 4]]
    torch.testing.assert_close(scores, (logits + bias).log_softmax(-1).gather(1, ids))


@pytest.mark.parametrize("form", ["torchscript", "torch-export", "aoti"])
@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"precision": "int8"}, "is in float32; leave out --precision"),
        ({"attention": True, "attention_heads": (2,)}, "no decoder head 2"),
    ],
    ids=["int8", "attention"],
)
def test_what_a_format_lacks_is_refused_before_any_work(
    form: GraphFormat, changes: dict[str, Any], advice: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    stages: list[str] = []
    with pytest.raises(ExportError, match=advice):
        export_bundle(checkpoint, tmp_path / "bundle", ExportOptions(format=form, **changes), stages.append)
    assert stages == []


def test_native_code_without_a_compiler_is_refused_before_any_work(checkpoint: Checkpoint, tmp_path: Path) -> None:
    from torch._inductor import config

    stages: list[str] = []
    with config.patch({"cpp.cxx": ("no-such-compiler",)}), pytest.raises(ExportError, match=r"needs a C\+\+ compiler"):
        export_bundle(checkpoint, tmp_path / "bundle", ExportOptions(format="aoti"), stages.append)
    assert stages == []


def test_a_changed_program_is_not_loaded_even_where_hashes_were_left_out(programs: Bundle, tmp_path: Path) -> None:
    """Loading one may run what is in it."""
    folder = shutil.copytree(programs.folder, tmp_path / "bundle")
    data = bytearray((folder / "decoder.pt2").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "decoder.pt2").write_bytes(data)
    with pytest.raises(BundleError, match=r"decoder\.pt2: its content has changed"):
        open_any(read_bundle(folder, verify=False), SessionOptions())


def test_a_damaged_module_is_one_line(torchscript: Bundle, tmp_path: Path) -> None:
    folder = shutil.copytree(torchscript.folder, tmp_path / "bundle")
    size = (folder / "model.pt").stat().st_size
    (folder / "model.pt").write_bytes(bytes(size))
    with pytest.raises(BundleError, match=r"model\.pt: torch .* cannot load this module: [^\n]*$"):
        open_any(read_bundle(folder, verify=False), SessionOptions())


@compiled
@pytest.mark.timeout(1800)  # the compiler is slow
def test_native_code_is_compared_with_pytorch(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert_further_outputs(exported(checkpoint, "aoti", tmp_path_factory), checkpoint, TEXTS, SEEN, (1,))


@compiled
@pytest.mark.timeout(1800)  # the compiler is slow
@pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("c++") is None, reason="needs cmake and a compiler")
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_program_without_python_finds_the_same(
    beam_size: int, torchscript: Bundle, checkpoint: Checkpoint, libtorch_program: Path
) -> None:
    requests = sources(6)
    lines = "".join(" ".join(map(str, request.source)) + "\n" for request in requests)
    command = [libtorch_program, torchscript.path("model.pt"), str(beam_size)]
    done = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8", check=True, timeout=120)
    rows = [line.split() for line in done.stdout.splitlines()]
    wanted = expected(checkpoint, requests, {"beam_size": beam_size})
    assert_same([[(tuple(map(int, ids)), end == "1", float(score))] for score, end, *ids in rows], wanted)


@pytest.fixture(scope="module")
def libtorch_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build(folder: Path) -> None:
        prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
        for command in (["cmake", "-S", HERE / "libtorch", "-B", folder, prefix], ["cmake", "--build", folder]):
            subprocess.run(command, check=True, capture_output=True, timeout=280)

    return made_once(tmp_path_factory, "libtorch", build) / "translate"


def _weights(path: Path) -> set[str]:
    """Names of the weights in a program's file."""
    with zipfile.ZipFile(path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("model_weights_config.json"))
        return set(json.loads(archive.read(name))["config"])
