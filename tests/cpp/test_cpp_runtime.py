"""The C++ runtime: it builds, its own tests pass, and it gives what the Python runtime gives."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.conftest import TEXT, made_once
from tests.cpp.built_runtime import BUILD, Built
from tests.cpp.make_fixtures import FIXTURE, from_json
from tests.cpp.random_requests import any_options, collected, requests
from tests.ort_bundle import write_ort_bundle
from tests.search.cases import decode_watched
from tfexport.export import ExportOptions, export_bundle
from tfexport.formats import onnx_pair
from tfexport.graphs.further_outputs import FurtherOutputs
from tfexport.precision import Precision
from tfexport_runtime.bundle import pack_zip, read_bundle, write_manifest
from tfexport_runtime.errors import TfexportError
from tfexport_runtime.options import Progress
from tfexport_runtime.session import SessionOptions
from tfexport_runtime.step_model import FloatArray
from tfexport_runtime.translation import Translation
from tfexport_runtime.translator import Translator
from tfexport_train.checkpoint import Checkpoint

pytestmark = pytest.mark.timeout(1800)  # a first build takes a minute or two

WORDS = TEXT.split()
TEXTS = [
    "",
    *(" ".join(WORDS[i : i + length]) for i, length in enumerate((1, 3, 5, 8, 13, 2, 7))),
    " \u3000 ",
    "ein hund \U0001f600 läuft\u00a0über e\u0301 ﬁ Ⅷ",
    "x",
]

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam 4": {"beam_size": 4},
    "beam 8, all of them": {"beam_size": 8, "n_best": 8},
    "penalty none": {"beam_size": 4, "length_penalty": "none"},
    "penalty average": {"beam_size": 4, "alpha": 0.6, "length_offset": 1},
    "penalty gnmt": {"beam_size": 4, "length_penalty": "gnmt", "alpha": 0.6, "n_best": 3},
    "penalty word_reward": {"beam_size": 4, "length_penalty": "word_reward", "word_reward": 0.4},
    "early stopping": {"beam_size": 3, "early_stopping": True},
    "samples": {"sampling": True, "n_best": 3, "seed": 7},
    "samples, cut": {"sampling": True, "temperature": 0.7, "top_k": 20, "top_p": 0.9, "seed": 2**64 - 1},
    "least and most length": {"beam_size": 2, "min_length": 5, "max_length": 9},
    "ratio": {"max_length_ratio": 1.5, "max_length_extra": 2},
    "no limit by the ratio": {"max_length_ratio": float("inf")},
    "n-grams": {"beam_size": 3, "no_repeat_ngram_size": 2},
    "repetition": {"beam_size": 3, "repetition_penalty": 1.3, "suppress_tokens": [5, 9]},
    "small batches": {"beam_size": 2, "max_batch_tokens": 16},
}


@pytest.fixture(scope="session", params=["in_place", "growing"])
def bundle(request: pytest.FixtureRequest, tiny_bundle: Path, tiny_portable_bundle: Path) -> Path:
    return tiny_bundle if request.param == "in_place" else tiny_portable_bundle


@pytest.fixture(scope="session")
def ort_bundle(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "tiny-in-ort-format", lambda path: write_ort_bundle(tiny_bundle, path))


@pytest.fixture(scope="session")
def fixed_ort_bundle(tiny_fixed_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "tiny-fixed-in-ort", lambda path: write_ort_bundle(tiny_fixed_bundle, path))


@pytest.fixture(scope="session", params=["fp16", "int8", "int8-weight", "int4"])
def reduced_bundle(
    request: pytest.FixtureRequest,
    tiny_checkpoint: Checkpoint,
    tiny_bundle: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """In a reduced precision, from graphs that are there, since a trace takes long."""
    precision: Precision = request.param

    def export(path: Path) -> None:
        graphs = {name: ir.load(tiny_bundle / f"{name}.onnx") for name in ("encoder", "decoder")}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(onnx_pair, "build_graphs", lambda work: graphs)
            export_bundle(tiny_checkpoint, path, ExportOptions(name="tiny", precision=precision))

    return made_once(tmp_path_factory, f"tiny-{precision}", export)


@pytest.fixture(scope="session", params=["in_place", "growing", "in_place, ort", "fixed", "fixed, ort"])
def further_bundle(
    request: pytest.FixtureRequest,
    tiny_checkpoint: Checkpoint,
    tiny_bundle: Path,
    tiny_portable_bundle: Path,
    tiny_fixed_bundle: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """With all outputs on request, in each form of the cache, from graphs that are there."""
    form, _, container = request.param.partition(", ")
    traced = {"in_place": tiny_bundle, "growing": tiny_portable_bundle, "fixed": tiny_fixed_bundle}[form]

    def export(path: Path) -> None:
        options = ExportOptions(name="tiny", attention=True, attention_layers=(0,), encoder_state=True)
        options = replace(options, operators="portable" if form == "growing" else "ort")
        config = tiny_checkpoint.config
        graphs = {name: ir.load(traced / f"{name}.onnx") for name in ("encoder", "decoder")}
        graphs = onnx_pair.with_further_outputs(graphs, FurtherOutputs.of(options, config), config)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(onnx_pair, "build_graphs", lambda work: graphs)
            export_bundle(tiny_checkpoint, path, options)

    made = traced if form == "fixed" else made_once(tmp_path_factory, f"tiny-further-{form}", export)
    if not container:
        return made
    return made_once(tmp_path_factory, f"tiny-further-{form}-ort", lambda path: write_ort_bundle(made, path))


@pytest.fixture(scope="session")
def python(bundle: Path) -> Translator:
    return Translator(bundle, SessionOptions(threads=1))


def flags(options: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            found.append(flag)
        else:
            found += [flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return found


def assert_same(
    built: Built,
    python: Translator,
    options: Mapping[str, Any],
    texts: Sequence[str] = TEXTS,
    prefixes: tuple[Path, Sequence[str]] | None = None,
) -> None:
    """Ids, tokens, texts and reasons are equal; scores within 1e-5."""
    more = ["--prefix", str(prefixes[0])] if prefixes else []
    lines = "".join(text + "\n" for text in texts)
    out = built.run(str(python.bundle.folder), "--json", "--threads", "1", *flags(options), *more, text=lines)
    found = [json.loads(line) for line in out.splitlines()]
    expected = python.translate(list(texts), python.options(options), prefixes[1] if prefixes else None)
    assert len(found) == len(expected)
    for line, translation in zip(found, expected, strict=True):
        assert_same_hypotheses(line["hypotheses"], translation)


def assert_same_hypotheses(found: Sequence[dict[str, Any]], expected: Translation) -> None:
    assert len(found) == len(expected.hypotheses)
    for h, e in zip(found, expected.hypotheses, strict=True):
        assert (h["ids"], h["tokens"], h["text"]) == (list(e.ids), list(e.tokens), e.text)
        assert h["finish_reason"] == e.finish_reason
        assert h["score"] == pytest.approx(e.score, abs=1e-5)
        assert h["token_scores"] == pytest.approx(e.token_scores, abs=1e-5)


def test_own_tests_pass(built: Built, tiny_bundle: Path) -> None:
    environment = {**built.environment, "TFEXPORT_TEST_BUNDLE": str(tiny_bundle), "TFEXPORT_TEST_REQUESTS": "50"}
    command = ["ctest", "--output-on-failure"]
    done = subprocess.run(command, cwd=BUILD, capture_output=True, encoding="utf-8", env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100% tests passed" in done.stdout


@pytest.mark.parametrize("form", ["tiny_portable_bundle", "ort_bundle", "fixed_ort_bundle"])
def test_own_tests_of_bundles_pass(built: Built, form: str, request: pytest.FixtureRequest) -> None:
    """From a folder, a zip and memory, with threads, and through the C interface."""
    given = {"TFEXPORT_TEST_BUNDLE": str(request.getfixturevalue(form)), "TFEXPORT_TEST_REQUESTS": "10"}
    command = [BUILD / "tests" / "tfexport-tests", "real_bundle"]
    environment = {**built.environment, **given}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_python_agrees_with_the_fixture_of_the_own_tests() -> None:
    for values in json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"]:
        for found, result in zip(decode_watched(from_json(values))[0], values["results"], strict=True):
            assert [list(d.ids) for d in found] == [h["ids"] for h in result["hypotheses"]]
            assert [d.score for d in found] == pytest.approx([h["score"] for h in result["hypotheses"]], abs=1e-5)


def test_golden_file_passes(built: Built, bundle: Path) -> None:
    assert " 0 differences" in built.run(str(bundle), "--self-test", "--threads", "1")


def test_every_precision_gives_what_it_gives_in_python(built: Built, reduced_bundle: Path, tmp_path: Path) -> None:
    """And the same in ONNX Runtime's own file format."""
    assert " 0 differences" in built.run(str(reduced_bundle), "--self-test", "--threads", "1")
    write_ort_bundle(reduced_bundle, tmp_path / "ort")
    for form, search in ((reduced_bundle, "samples, cut"), (tmp_path / "ort", "beam 8, all of them")):
        assert_same(built, Translator(form, SessionOptions(threads=1)), SEARCHES[search])


def test_golden_file_passes_from_a_zip_with_a_name_in_any_script(built: Built, bundle: Path, tmp_path: Path) -> None:
    packed = tmp_path / "pакет 束.zip"
    pack_zip(bundle, packed)
    assert " 0 differences" in built.run(str(packed), "--self-test", "--threads", "1")


@pytest.mark.parametrize("name", SEARCHES)
def test_results_are_those_of_python(built: Built, python: Translator, name: str) -> None:
    assert_same(built, python, SEARCHES[name])


@pytest.mark.parametrize("options", [{}, {"beam_size": 3, "min_length": 3}, {"beam_size": 3, "prefix_strength": 0.6}])
def test_prefixes_give_what_they_give_in_python(
    built: Built, python: Translator, options: dict[str, Any], tmp_path: Path
) -> None:
    prefixes = [" ".join(WORDS[: i % 4]).upper() for i in range(len(TEXTS))]
    file = tmp_path / "prefixes.txt"
    file.write_text("".join(p + "\n" for p in prefixes), encoding="utf-8")
    assert_same(built, python, options, prefixes=(file, prefixes))


def python_answer(python: Translator, request: Mapping[str, Any]) -> list[Translation] | int:
    """What the Python runtime gives, or the status of its error; the calls of the callback go to request["seen"]."""
    steps: dict[tuple[int, int], int] = {}

    def callback(progress: Progress) -> bool:
        request["seen"].append([progress.sentence, progress.sample, list(progress.tokens), progress.score])
        step = steps.setdefault((progress.sentence, progress.sample), 0)
        steps[progress.sentence, progress.sample] += 1
        return [progress.sentence, step] in request["cancels"]

    try:
        options = replace(python.options(request["options"]), callback=callback)
        return python.translate(request["texts"], options, request.get("prefixes"))
    except TfexportError as error:
        return error.exit_status


def test_what_python_refuses_is_refused(built: Built, tiny_bundle: Path) -> None:
    python = Translator(tiny_bundle, SessionOptions(threads=1))
    asked = [{"texts": [], "options": options} for options in collected(any_options(400), 400)]
    answers = built.replay(tiny_bundle, asked)
    expected = [python_answer(python, request) for request in asked]
    assert [answer.get("status", []) for answer in answers] == expected
    assert expected.count(2) > 80
    assert expected.count([]) > 80


@pytest.mark.filterwarnings("ignore::tfexport_runtime.errors.TruncationWarning")
def test_random_requests_give_what_they_give_in_python(built: Built, python: Translator) -> None:
    """Ids, scores, what the callback saw, and where a text is refused."""
    assert_same_answers(built, python, collected(requests(WORDS, 400), 100))


@pytest.mark.filterwarnings("ignore::tfexport_runtime.errors.TruncationWarning")
def test_fixed_shapes_give_what_they_give_in_python(built: Built, tiny_fixed_bundle: Path) -> None:
    """More rows than the graph takes at once, wider beams than it ranks, and texts that are too long for it."""
    python = Translator(tiny_fixed_bundle, SessionOptions(threads=1))
    assert_same_answers(built, python, collected(requests(WORDS, 400), 60))
    assert_same(built, python, SEARCHES["beam 8, all of them"])


def assert_same_answers(built: Built, python: Translator, asked: Sequence[dict[str, Any]]) -> None:
    for answer, request in zip(built.replay(python.bundle.folder, asked), asked, strict=True):
        request["seen"] = []
        expected = python_answer(python, request)
        if isinstance(expected, int):
            assert answer.get("status") == expected, request
            continue
        for found, translation in zip(answer["translations"], expected, strict=True):
            assert_same_hypotheses(found["hypotheses"], translation)
        assert [call[:3] for call in answer["seen"]] == [call[:3] for call in request["seen"]]
        assert [call[3] for call in answer["seen"]] == pytest.approx([call[3] for call in request["seen"]], abs=1e-5)


@pytest.mark.parametrize("added", [(), (11, 12)], ids=["", "with ids in front of every target"])
def test_outputs_on_request_are_those_of_python(
    built: Built, further_bundle: Path, added: tuple[int, ...], tmp_path: Path
) -> None:
    """Of lines of several lengths and an empty one together, each hypothesis of a beam, and with prefixes."""
    folder = shutil.copytree(further_bundle, tmp_path / "bundle")
    manifest = read_bundle(folder).manifest
    write_manifest(folder, replace(manifest, target=replace(manifest.target, prefix_ids=added)))
    python = Translator(folder, SessionOptions(threads=1))
    texts, prefixes = TEXTS[:5], ["", *(" ".join(WORDS[:i]) for i in range(4))]
    searches: list[dict[str, Any]] = [
        {"options": {}},
        {"options": {"beam_size": 3, "n_best": 3}, "prefixes": prefixes},
        {"options": {"sampling": True, "n_best": 2, "max_length": 1}},
        {"options": {"beam_size": 2, "n_best": 2}, "cancels": [[3, 0]]},
    ]
    asked = [{"texts": texts, "attention": True, **search} for search in searches]
    *answers, states = built.replay(folder, [*asked, {"texts": texts, "states": True}])
    for answer, search in zip(answers, searches, strict=True):
        stop = bool(search.get("cancels"))
        options = replace(python.options(search["options"]), callback=lambda p, stop=stop: stop and p.sentence == 3)
        expected = python.translate(texts, options, search.get("prefixes"), attention=True)
        for found, translation in zip(answer["translations"], expected, strict=True):
            assert_same_hypotheses(found["hypotheses"], translation)
            for h, e in zip(found["hypotheses"], translation.hypotheses, strict=True):
                assert h["attention"].keys() == e.attention.keys()
                for name, weights in e.attention.items():
                    assert_same_array(h["attention"][name], weights)
        assert all(h.attention for t in expected[1:] for h in t.hypotheses)
    for found, expected_states in zip(states["states"], python.encoder_states(texts), strict=True):
        assert_same_array(found, expected_states)


def assert_same_array(found: Mapping[str, Any], expected: FloatArray) -> None:
    assert found["shape"] == list(expected.shape)
    np.testing.assert_allclose(np.reshape(found["values"], expected.shape), expected, atol=1e-5)


def test_outputs_that_were_not_asked_for_at_export_are_refused(built: Built, tiny_bundle: Path) -> None:
    asked = [{"texts": ["x"], "attention": True}, {"texts": ["x"], "states": True}, {"texts": [""], "states": True}]
    *refused, nothing = built.replay(tiny_bundle, asked)
    assert [answer["status"] for answer in refused] == [2, 2]
    assert "export it with --with attention" in refused[0]["error"]
    assert "export it with --with encoder-state" in refused[1]["error"]
    assert nothing["states"] == [{"shape": [0, 32], "values": []}]


def test_ids_that_a_bundle_adds_are_read_but_never_shown(built: Built, tiny_bundle: Path, tmp_path: Path) -> None:
    """And ids of the tokenizer beyond the vocabulary are unknown ones."""
    folder = shutil.copytree(tiny_bundle, tmp_path / "bundle")
    plain = Translator(tiny_bundle, SessionOptions(threads=1))
    manifest = plain.bundle.manifest
    changed = replace(
        manifest,
        source=replace(manifest.source, prefix_ids=(7,), suffix_ids=(9, 8)),
        target=replace(manifest.target, prefix_ids=(11, 12)),
        model=replace(manifest.model, source_vocab_size=50),
    )
    write_manifest(folder, changed)
    python = Translator(folder, SessionOptions(threads=1))
    assert python.translate(TEXTS) != plain.translate(TEXTS)
    prefixes = [" ".join(WORDS[: i % 4]).upper() for i in range(len(TEXTS))]
    asked = [
        {"texts": TEXTS, "prefixes": prefixes, "options": options, "cancels": [[2, 1], [5, 4]], "seen": []}
        for options in ({}, {"beam_size": 3, "n_best": 3, "prefix_strength": 0.7}, {"sampling": True, "n_best": 2})
    ]
    for answer, request in zip(built.replay(folder, asked), asked, strict=True):
        expected = python_answer(python, request)
        for found, translation in zip(answer["translations"], expected, strict=True):
            assert_same_hypotheses(found["hypotheses"], translation)
        assert [call[:3] for call in answer["seen"]] == [call[:3] for call in request["seen"]]


@pytest.mark.parametrize("change", [('"opset"', '"opset" '), ('"tiny"', '"tony"')])
def test_a_changed_manifest_is_refused(
    built: Built, tiny_bundle: Path, tmp_path: Path, change: tuple[str, str]
) -> None:
    folder = shutil.copytree(tiny_bundle, tmp_path / "bundle")
    text = (folder / "bundle.json").read_text(encoding="utf-8")
    assert change[0] in text
    (folder / "bundle.json").write_text(text.replace(*change), encoding="utf-8")
    command = [built.cli, folder, "--threads", "1"]
    done = subprocess.run(command, input=b"", capture_output=True, env=built.environment, check=False)
    assert done.returncode == 4
    assert b"bundle.json: was changed after it was written" in done.stderr


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_changed_weights_are_refused_unless_they_are_not_checked(
    built: Built, tiny_bundle: Path, tmp_path: Path, packed: bool
) -> None:
    bundle = tmp_path / ("bundle.zip" if packed else "bundle")
    if packed:
        pack_zip(tiny_bundle, bundle)
    else:
        shutil.copytree(tiny_bundle, bundle)
    file = bundle if packed else bundle / "weights.bin"
    content, weights = bytearray(file.read_bytes()), (tiny_bundle / "weights.bin").read_bytes()
    content[content.index(weights) + len(weights) // 2] ^= 1
    file.write_bytes(content)
    command = [built.cli, bundle, "--threads", "1"]
    done = subprocess.run(command, input=b"x\n", capture_output=True, env=built.environment, check=False)
    assert done.returncode == 4
    assert b"weights.bin: its content has changed (SHA-256 differs)" in done.stderr
    assert built.run(str(bundle), "--threads", "1", "--no-verify", text="x\n").count("\n") == 1


@pytest.mark.filterwarnings("ignore::tfexport_runtime.errors.TruncationWarning")
@pytest.mark.parametrize("options", [{}, {"beam_size": 4}])
def test_real_text_gives_what_it_gives_in_python(
    built: Built, python: Translator, options: dict[str, Any], data_folder: Path
) -> None:
    lines = (data_folder / "multi30k" / "test_2016_flickr.de").read_text(encoding="utf-8").splitlines()
    assert_same(
        built, python, {**options, "max_length": 20, "truncate_source": True}, lines if not options else lines[:200]
    )
