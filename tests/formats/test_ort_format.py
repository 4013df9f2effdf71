"""The graphs in ONNX Runtime's own file format: the same tokens, and the operators that a small build needs."""

from __future__ import annotations

import re
from pathlib import Path

import onnx_ir as ir
import pytest

from tests.conftest import made_once
from tests.formats.further_outputs import assert_further_outputs
from tfexport.errors import ExportError
from tfexport.export import ExportOptions, export_bundle
from tfexport.formats import onnx_pair, ort_pair
from tfexport.formats.format import Work
from tfexport.formats.ort_pair import OPERATORS_FILE
from tfexport.formats.read_graph import load_graph, read_graph
from tfexport.graphs.further_outputs import FurtherOutputs
from tfexport.graphs.signature import FixedShape
from tfexport.passes.quantised_products import INTEGER_PRODUCTS, quantised_products
from tfexport.precision import choose_precision
from tfexport_runtime.bundle import read_bundle
from tfexport_runtime.errors import OptionError
from tfexport_runtime.session import SessionOptions
from tfexport_runtime.translator import Translator
from tfexport_train.checkpoint import Checkpoint

TEXTS = ["ein hund läuft", "", "die grüne wiese am see", "kleiner hund und roter ball spielt"]


@pytest.fixture
def traced(tiny_bundle: Path, tiny_fixed_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs come from bundles that are there, since a trace takes long; all that follows is as ever."""

    def build(work: Work) -> dict[str, ir.Model]:
        folder = tiny_fixed_bundle if work.options.static else tiny_bundle
        graphs = {name: ir.load(folder / f"{name}.onnx") for name in ("encoder", "decoder")}
        config = work.checkpoint.config
        return onnx_pair.with_further_outputs(graphs, FurtherOutputs.of(work.options, config), config)

    monkeypatch.setattr(onnx_pair, "build_graphs", build)


@pytest.fixture
def ort_bundle(traced: None, tiny_checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def export(path: Path) -> None:
        options = ExportOptions(format="ort", name="tiny", attention=True, attention_layers=(0,), encoder_state=True)
        export_bundle(tiny_checkpoint, path, options)

    return made_once(tmp_path_factory, "tiny-ort", export)


def test_tokens_and_scores_are_those_of_the_onnx_bundle(ort_bundle: Path, tiny_bundle: Path) -> None:
    for options in ({}, {"beam_size": 4, "n_best": 4}, {"sampling": True, "seed": 3}):
        found = []
        for path in (tiny_bundle, ort_bundle):
            translator = Translator(path, SessionOptions(threads=1))
            translations = translator.translate(TEXTS, translator.options({"max_length": 16, **options}))
            found.append([hypothesis for translation in translations for hypothesis in translation.hypotheses])
        assert [h.ids for h in found[0]] == [h.ids for h in found[1]]
        assert [h.score for h in found[0]] == pytest.approx([h.score for h in found[1]], abs=1e-5)


def test_outputs_on_request_are_those_of_pytorch(ort_bundle: Path, tiny_checkpoint: Checkpoint) -> None:
    texts = [text for text in TEXTS if text]
    assert_further_outputs(read_bundle(ort_bundle), tiny_checkpoint, texts, {"cross_attention.0": 0}, range(4))


def test_what_was_not_asked_for_at_export_is_refused(tiny_bundle: Path) -> None:
    translator = Translator(tiny_bundle, SessionOptions(threads=1))
    with pytest.raises(OptionError, match="export it with --with attention"):
        translator.translate(TEXTS, attention=True)
    with pytest.raises(OptionError, match="export it with --with encoder-state"):
        translator.encoder_states(TEXTS)


def test_graphs_hold_their_weights_and_no_onnx_is_left(ort_bundle: Path) -> None:
    manifest = read_bundle(ort_bundle).manifest
    assert (manifest.graph_format, manifest.cache.form, manifest.weights) == ("ort", "in_place", ())
    assert {"decoder.ort", "encoder.ort", OPERATORS_FILE} <= set(manifest.files)
    assert [name for name in manifest.files if name.endswith((".onnx", ".bin"))] == []
    assert not list(ort_bundle.parent.glob(".ort.*"))


def test_the_list_of_operators_is_that_of_both_graphs(ort_bundle: Path) -> None:
    text = (ort_bundle / OPERATORS_FILE).read_text(encoding="utf-8")
    assert 'Gather{"inputs": {"0": ["float"], "1": ["int32_t", "int64_t"]}}' in text
    listed = {
        (domain, name)
        for domain, _, names in re.findall(r"^([\w.]+);(\d+);(.+)$", text, re.MULTILINE)
        for name in re.findall(r"[A-Z]\w+(?=[,{]|$)", re.sub(r"\{.*?\}\}", "{}", names))
    }
    bundle = read_bundle(ort_bundle)
    nodes = [node for name in ("encoder", "decoder") for node in read_graph(bundle, name).graph]
    assert listed == {(node.domain or "ai.onnx", node.op_type) for node in nodes}
    assert ("com.microsoft", "GroupQueryAttention") in listed
    assert str(ort_bundle.parent) not in text


def test_fused_operators_that_the_runtime_leaves_out_are_left_out_here(ort_bundle: Path) -> None:
    """Nothing is optimised at load, so the file must hold what the runtime would have made of the ONNX graph."""
    assert "SkipLayerNormalization" not in (ort_bundle / OPERATORS_FILE).read_text(encoding="utf-8")


def test_a_reduced_precision_keeps_its_integers(traced: None, tiny_checkpoint: Checkpoint, tmp_path: Path) -> None:
    report = export_bundle(tiny_checkpoint, tmp_path / "int8", ExportOptions(format="ort", precision="int8"))
    assert report.parity.kernels is not None
    assert report.parity.kernels.products > 8
    assert report.parity.kernels.in_float == ()
    found = list(quantised_products(read_graph(read_bundle(tmp_path / "int8"), "decoder")))
    assert {product.node.op_type for product in found} <= INTEGER_PRODUCTS


def test_fixed_shapes_stay_in_standard_operators_that_phones_take(
    traced: None, tiny_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    options = ExportOptions(format="ort", operators="portable", static=FixedShape(48, 40, 4))
    choice = choose_precision("fp32", None, full_range=False)
    model = tiny_checkpoint.build_model()
    (tmp_path / "bundle").mkdir()
    written = ort_pair.write(Work(tiny_checkpoint, model, options, choice, tmp_path / "bundle", lambda stage: None))
    assert (written.cache.form, written.requirements.domains) == ("fixed", ("",))
    for name in ("encoder", "decoder"):
        nodes = list(load_graph(tmp_path / "bundle" / f"{name}.ort").graph)
        assert {node.domain for node in nodes} == {""}
        assert "LayerNormalization" not in {node.op_type for node in nodes}


def test_weights_above_what_the_format_holds_are_refused(
    traced: None, tiny_checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_pair, "MAX_BYTES", 10_000)
    with pytest.raises(ExportError, match="choose --format onnx"):
        export_bundle(tiny_checkpoint, tmp_path / "bundle", ExportOptions(format="ort"))
    assert list(tmp_path.iterdir()) == []
