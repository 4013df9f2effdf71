"""The whole search as one graph: the same hypotheses as the runtime's own search, in every engine that is here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT, made_once, with_ids
from tests.formats.further_outputs import assert_further_outputs
from tests.formats.table_graphs import SOURCES, VOCAB, TableSteps, make_table, table_graphs
from tests.search.cases import PENALTIES, examples
from tfexport.errors import ExportError
from tfexport.export import ExportOptions, export_bundle
from tfexport.formats import single, single_text
from tfexport.formats.format import Work
from tfexport.graphs.search_graph import build_search
from tfexport.precision import PrecisionChoice
from tfexport_runtime.bundle import Bundle, describe_files, read_bundle, write_manifest
from tfexport_runtime.errors import OptionError, TruncationWarning, UnavailableError
from tfexport_runtime.hypothesis import Decoded
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.search import search
from tfexport_runtime.search_graph import OUTPUTS, SearchGraph
from tfexport_runtime.step_model import Request, Target
from tfexport_runtime.translator import Translator
from tfexport_train.checkpoint import Checkpoint, TextSide
from tfexport_train.evaluate import TorchTranslator

TARGET = Target(VOCAB, start_id=1, eos_id=2, never_generated=(0, 1), max_length=14)
WITH_PREFIX = replace(TARGET, prefix_ids=(5, 2, 1))
TEXTS = ["ein kleiner hund", "", "über die grüne wiese und mit dem ball", "see"]

ODD = [  # for a tokenizer
    *("  ", "\u0085", "\u200b\ufeff\t", "\u2028", "\r\n"),  # nothing but white space
    *("  kleiner   hund  ", "\thund", "hund\u00a0und\u3000ball", "der\nsee", "\ufeffhund", "hund\u200b"),
    *("läuft", "la\u0308uft", "ＨＵＮＤ", "ﬁne ½ ²", "Ǆ", "\u202ehund", "\u0001hund"),  # what is normalised
    *("\U0001f415 hund", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "日本語", "नमस्ते", "مرحبا"),  # unknown pieces
    *("<s> </s> <unk>", "▁hund▁see", "a" * 60, "?!" * 9),
]


def graph_of(model: ir.Model) -> SearchGraph:
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level, settings.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    return SearchGraph(session, pad_id=0)


@pytest.fixture(scope="module")
def searchers() -> dict[Target, tuple[SearchGraph, TableSteps]]:
    table = make_table(7)
    return {
        target: (graph_of(build_search(*table_graphs(table), target, 0, TranslationOptions())), TableSteps(table))
        for target in (TARGET, WITH_PREFIX)
    }


@given(
    sources=st.lists(st.lists(st.integers(0, SOURCES - 1), min_size=1, max_size=4), min_size=1, max_size=4),
    target=st.sampled_from([TARGET, WITH_PREFIX]),
    beam_size=st.integers(1, 10),
    penalty=st.sampled_from(PENALTIES),
    options=st.fixed_dictionaries(
        {
            "alpha": st.sampled_from([1.0, 0.0, 0.5, -0.5, 2.0]),
            "length_offset": st.integers(0, 1),
            "word_reward": st.sampled_from([0.0, 0.5, 2.0, -1.0]),
            "early_stopping": st.booleans(),
            "min_length": st.integers(0, 3),
            "max_length": st.none() | st.integers(3, 20),
            "max_length_ratio": st.none() | st.sampled_from([0.0, 1.5, 2.0]),
            "max_length_extra": st.integers(1, 9),
        }
    ),
)
@examples(100)
def test_every_search_finds_what_the_runtime_finds(
    searchers: dict[Target, tuple[SearchGraph, TableSteps]],
    sources: list[list[int]],
    target: Target,
    beam_size: int,
    penalty: str,
    options: dict[str, Any],
) -> None:
    graph, steps = searchers[target]
    changes = {"beam_size": beam_size, "n_best": beam_size, "length_penalty": penalty, **options}
    wanted = TranslationOptions().with_changes(changes)
    requests = [Request(tuple(source)) for source in sources]
    found, expected = graph.search(requests, wanted, target), search(steps, requests, wanted, target)
    assert list(map(shape, found)) == list(map(shape, expected))
    for a, b in zip(chain(*found), chain(*expected), strict=True):
        np.testing.assert_allclose((a.score, *a.token_scores), (b.score, *b.token_scores), rtol=1e-6, atol=1e-6)


def shape(hypotheses: list[Decoded]) -> list[tuple[tuple[int, ...], str]]:
    return [(h.ids, h.finish_reason) for h in hypotheses]


@pytest.fixture(scope="session")
def bundle(tiny_single_bundle: Path) -> Bundle:
    return read_bundle(tiny_single_bundle)


def test_the_bundle_is_one_graph_of_standard_operators_with_every_weight_once(bundle: Bundle) -> None:
    manifest = bundle.manifest
    model = onnx.load(bundle.path("search.onnx"), load_external_data=False)
    assert list(manifest.graphs) == ["search"]
    assert manifest.operators == "portable"
    assert [opset.domain for opset in model.opset_import] == [""]
    assert [i.name for i in model.graph.input] == [t.name for t in manifest.graphs["search"].inputs]
    assert [o.name for o in model.graph.output] == [t.name for t in manifest.graphs["search"].outputs]
    assert manifest.files["weights.bin"].bytes < 4 * manifest.model.parameters + 40_000  # position tables and biases
    onnx.checker.check_model(bundle.path("search.onnx"), full_check=True)


@pytest.mark.parametrize("changes", [{}, {"beam_size": 4, "n_best": 3, "length_penalty": "gnmt", "alpha": 0.6}])
def test_the_runtime_translates_with_it_as_pytorch_does(
    bundle: Bundle, tiny_checkpoint: Checkpoint, changes: dict[str, Any]
) -> None:
    options = TranslationOptions(max_length=12, min_length=2).with_changes(changes)
    expected = TorchTranslator.from_checkpoint(with_ids(tiny_checkpoint)).translate(TEXTS, options)
    found = Translator(bundle.folder).translate(TEXTS, options)
    assert [[h.ids for h in t.hypotheses] for t in found] == [[h.ids for h in t.hypotheses] for t in expected]
    assert [t.text for t in found] == [t.text for t in expected]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.best.token_scores, theirs.best.token_scores, atol=1e-4)


def test_hypotheses_of_a_search_come_with_what_they_looked_at(bundle: Bundle, tiny_checkpoint: Checkpoint) -> None:
    texts = [text for text in TEXTS if text]
    assert_further_outputs(bundle, with_ids(tiny_checkpoint), texts, {"cross_attention": -1}, range(4))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sampling": True}, "sampling"),
        ({"no_repeat_ngram_size": 2}, "no_repeat_ngram_size"),
        ({"repetition_penalty": 1.2}, "repetition_penalty"),
        ({"suppress_tokens": (5,)}, "suppress_tokens"),
    ],
)
def test_what_the_graph_cannot_do_is_refused_in_one_line(bundle: Bundle, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=rf"single cannot do {named}: .*\Z"):
        Translator(bundle.folder).translate(TEXTS, TranslationOptions().with_changes(changes))


def _request(bundle: Bundle) -> tuple[dict[str, Any], list[Any]]:
    """Two sentences and an empty one, and what ONNX Runtime makes of them."""
    ids = np.array([[5, 20, 31, 45, 2, 7], [5, 60, 2, 7, 0, 0], [0] * 6])
    mask = np.array([[1] * 6, [1] * 4 + [0] * 2, [0] * 6], np.int32)
    inputs = {"input_ids": ids, "attention_mask": mask, "beam_size": np.array([3]), "max_length": np.array([9])}
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(bundle.path("search.onnx"), settings, providers=["CPUExecutionProvider"])
    return inputs, session.run(OUTPUTS, inputs)


def test_an_empty_text_is_an_empty_hypothesis_of_score_0(bundle: Bundle) -> None:
    _, (sequences, lengths, scores, token_scores, finished) = _request(bundle)
    assert lengths[2].tolist() == [0, 0, 0]
    assert scores[2].tolist() == [0, -np.inf, -np.inf]
    assert finished[2].tolist() == [True, False, False]
    assert not sequences[2].any()
    assert not token_scores[2].any()
    assert lengths[:2].min() > 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_reference_evaluator_of_onnx_finds_the_same(bundle: Bundle) -> None:
    from onnx.reference import ReferenceEvaluator

    inputs, expected = _request(bundle)
    found = ReferenceEvaluator(onnx.load(bundle.path("search.onnx"))).run(list(OUTPUTS), inputs)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_webassembly_finds_the_same(bundle: Bundle) -> None:
    engine = ROOT / "runtime/web/node_modules/onnxruntime-web/dist/ort.node.min.mjs"
    if shutil.which("node") is None or not engine.is_file():
        pytest.skip("needs node and: npm ci --prefix runtime/web")
    inputs, expected = _request(bundle)
    request = {
        "weights": bundle.manifest.weights,
        "inputs": {
            name: {"type": array.dtype.name, "dims": array.shape, "data": array.flatten().tolist()}
            for name, array in inputs.items()
        },
        "outputs": OUTPUTS,
    }
    script = Path(__file__).with_name("search_graph.mjs")
    command = ["node", str(script), str(engine), str(bundle.folder), json.dumps(request)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    for found, theirs in zip(json.loads(done.stdout.replace("null", "-Infinity")), expected, strict=True):
        ours = np.array(found["data"], theirs.dtype).reshape(found["dims"])
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "int8"}, "--precision fp32"),
        ({"opset": 9}, "choose 18 to"),
    ],
)
def test_what_the_format_cannot_be_is_refused_before_any_work(
    tiny_checkpoint: Checkpoint, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ExportError, match=message):
        export_bundle(tiny_checkpoint, tmp_path / "b", ExportOptions(format="single", **changes))


def test_weights_may_be_inside(tiny_checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With graphs that need no tracing."""

    def traced(*_: object) -> dict[str, ir.Model]:
        return dict(zip(("encoder", "decoder"), table_graphs(make_table(7)), strict=True))

    monkeypatch.setattr(single, "trace_graphs", traced)
    options = ExportOptions(format="single", weights_inside=True)
    choice = PrecisionChoice("fp32", False, "")
    work = Work(tiny_checkpoint, tiny_checkpoint.build_model(), options, choice, tmp_path, lambda stage: None)
    assert single.write(work).weights == []
    assert [path.name for path in tmp_path.iterdir()] == ["search.onnx"]


@pytest.fixture(scope="session")
def with_tokenizer(
    tiny_checkpoint: Checkpoint, tiny_single_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    """The same bundle with the graph from texts to texts."""
    pytest.importorskip("onnxruntime_extensions", reason='needs: pip install "tfexport[extensions]"')
    checkpoint = with_ids(tiny_checkpoint)
    options = ExportOptions(format="single", with_tokenizer=True)

    def make(path: Path) -> None:
        shutil.copytree(tiny_single_bundle, path)
        work = Work(checkpoint, checkpoint.build_model(), options, PrecisionChoice("fp32", False, ""), path, print)
        single_text.check_text(work)
        single_text.write_text_search(work, ir.load(path / "search.onnx"))
        write_manifest(path, replace(read_bundle(tiny_single_bundle).manifest, files=describe_files(path)))

    return read_bundle(made_once(tmp_path_factory, "tiny-single-text", make))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_with_the_tokenizer_inside_texts_come_out(
    with_tokenizer: Bundle, tiny_checkpoint: Checkpoint, beam_size: int
) -> None:
    """One too long for the model among them: it is cut."""
    texts = [*TEXTS, "hund " * 80, *ODD]
    options = TranslationOptions(beam_size=beam_size, max_length=12, truncate_source=True)
    with pytest.warns(TruncationWarning):
        expected = TorchTranslator.from_checkpoint(with_ids(tiny_checkpoint)).translate(texts, options)
    assert single_text.translate_texts(with_tokenizer, texts, options) == [t.text for t in expected]


def test_texts_come_without_further_outputs(tiny_checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="leave out it, or --with"):
        export_bundle(
            tiny_checkpoint, tmp_path / "b", ExportOptions(format="single", with_tokenizer=True, attention=True)
        )


def test_a_tokenizer_of_another_kind_is_not_put_into_a_graph(tiny_checkpoint: Checkpoint, tmp_path: Path) -> None:
    words = replace(tiny_checkpoint, source=TextSide("words", b"<pad>\n<s>\n</s>\n<unk>\nsee\n"))
    with pytest.raises(ExportError, match="SentencePiece"):
        export_bundle(words, tmp_path / "b", ExportOptions(format="single", with_tokenizer=True))


def test_without_the_operators_an_export_says_what_to_install(
    tiny_checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime_extensions", None)
    with pytest.raises(UnavailableError, match=r'pip install "tfexport\[extensions\]"'):
        export_bundle(tiny_checkpoint, tmp_path / "b", ExportOptions(format="single", with_tokenizer=True))


def test_flags_of_this_format_are_refused_for_others(tiny_checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="choose --format single"):
        export_bundle(tiny_checkpoint, tmp_path / "b", ExportOptions(weights_inside=True))
