"""What a bundle holds: each weight once, honest shapes, no traces of the machine it was made on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from tests.conftest import ROOT
from tests.export.conftest import FORMS, make_checkpoint
from tfexport.weights import INLINE_BELOW
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.session import SessionOptions, open_model
from tfexport_train.checkpoint import Checkpoint
from tfexport_train.evaluate import search_target

BundleOf = Callable[[str, str], Bundle]


def load(bundle: Bundle, graph: str) -> onnx.ModelProto:
    return onnx.load(bundle.path(bundle.manifest.graphs[graph].file))


@pytest.mark.parametrize("form", FORMS)
def test_each_weight_is_stored_once(form: str, bundle_of: BundleOf) -> None:
    bundle = bundle_of(form, "ort")
    model = make_checkpoint(form).build_model()
    positions = model.source_embedding.position_table
    tables = (0 if positions is None else positions.nbytes) * 2 + 64 * sum(1 for _ in model.parameters())
    parameters = sum(p.nbytes for p in model.parameters())
    assert bundle.manifest.files["weights.bin"].bytes <= parameters + tables
    arrays = [numpy_helper.to_array(i) for g in ("encoder", "decoder") for i in load(bundle, g).graph.initializer]
    large = [a for a in arrays if a.nbytes >= INLINE_BELOW]
    places = {
        (e["offset"], e["length"])
        for graph in ("encoder", "decoder")
        for i in onnx.load(bundle.path(f"{graph}.onnx"), load_external_data=False).graph.initializer
        if i.data_location == onnx.TensorProto.EXTERNAL
        for e in [{entry.key: entry.value for entry in i.external_data}]
    }
    assert all(int(offset) % 64 == 0 for offset, _ in places)
    contents = {a.tobytes() for a in large}
    assert len(places) == len(contents)
    matrices = [a for a in large if a.ndim == 2 and a.shape[0] != a.shape[1]]
    twins = [a.shape for a in matrices for b in matrices if a.shape == b.shape[::-1] and np.array_equal(a, b.T)]
    assert twins == []


@pytest.mark.parametrize(("form", "operators"), [("paper", "ort"), ("paper", "portable")])
def test_cross_keys_and_values_are_neither_computed_nor_returned_by_a_step(
    form: str, operators: str, bundle_of: BundleOf
) -> None:
    decoder = load(bundle_of(form, operators), "decoder").graph
    assert not [o.name for o in decoder.output if ".encoder." in o.name]
    cross = {i.name for i in decoder.input if ".encoder." in i.name}
    readers = {n.op_type for n in decoder.node if cross & set(n.input)}
    assert readers <= {"FusedMatMul", "MatMul", "Mul", "Shape", "Transpose", "Reshape"}
    weights = {i.name for i in decoder.initializer}
    products = [n for n in decoder.node if n.op_type == "MatMul" and cross & set(n.input)]
    assert not [n.name for n in products if weights & set(n.input)]


def test_portable_graphs_use_standard_operators_only(bundle_of: BundleOf) -> None:
    bundle = bundle_of("paper", "portable")
    domains = {n.domain for graph in ("encoder", "decoder") for n in load(bundle, graph).graph.node}
    assert domains == {""}
    assert bundle.manifest.requirements.domains == ("",)
    assert {o for graph in ("encoder", "decoder") for o in (n.op_type for n in load(bundle, graph).graph.node)} & {
        "If",
        "Loop",
        "Einsum",
    } == set()


@pytest.mark.parametrize("operators", ["ort", "portable"])
def test_the_manifest_says_what_the_graphs_take_and_give(operators: str, bundle_of: BundleOf) -> None:
    bundle = bundle_of("paper", operators)
    names = {"tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(float)": "float32"}
    for info in bundle.manifest.graphs.values():
        session = onnxruntime.InferenceSession(str(bundle.path(info.file)), providers=["CPUExecutionProvider"])
        for declared, found in ((info.inputs, session.get_inputs()), (info.outputs, session.get_outputs())):
            assert [(t.name, t.type, list(t.shape)) for t in declared] == [
                (t.name, names[t.type], t.shape) for t in found
            ]


def test_the_manifest_follows_the_schema(bundle_of: BundleOf) -> None:
    schema = json.loads((ROOT / "runtime" / "bundle.schema.json").read_text())
    for form, operators in (("paper", "ort"), ("annotated", "portable")):
        manifest = (bundle_of(form, operators).folder / "bundle.json").read_text(encoding="utf-8")
        jsonschema.validate(json.loads(manifest), schema)


def test_graphs_hold_no_traces_of_the_machine(bundle_of: BundleOf) -> None:
    for operators in ("ort", "portable"):
        for graph in ("encoder.onnx", "decoder.onnx"):
            content = bundle_of("paper", operators).read(graph)
            assert b".py" not in content
            assert str(Path.home()).encode() not in content
            assert str(ROOT).encode() not in content


def test_bound_buffers_give_what_a_plain_run_gives(bundle_of: BundleOf) -> None:
    bundle = bundle_of("modern", "ort")
    model = open_model(bundle, SessionOptions(threads=1))
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry("optimization.disable_specified_optimizers", "SkipLayerNormFusion")
    session = onnxruntime.InferenceSession(
        str(bundle.path("decoder.onnx")), settings, providers=["CPUExecutionProvider"]
    )
    cache = model.start([[5, 6, 7, 2], [8, 2]], 2)
    plain = {
        f"past_key_values.0.decoder.{part}": np.full((4, 4, 20, 8), np.nan, np.float32) for part in ("key", "value")
    }
    for step, token in enumerate([1, 9, 10, 11, 12]):
        inputs = {
            "input_ids": np.full((4, 1), token),
            "past_lengths": np.full(4, step, np.int32),
            "total_length": np.array([step + 1], np.int32),
            "encoder_attention_mask": cache.memory.mask,
            "logit_bias": np.zeros((1, 120), np.float32),
            "num_candidates": np.array([3]),
            "past_key_values.0.encoder.key": cache.memory.cross[0],
            "past_key_values.0.encoder.value": cache.memory.cross[1],
            **plain,
        }
        outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))
        logits, cache = model.step_logits(np.full(4, token), cache)  # type: ignore[arg-type]
        np.testing.assert_array_equal(logits, outputs["logits"])
        plain = {name: outputs[name.replace("past_key_values", "present")] for name in plain}


def test_ids_of_a_padded_vocabulary_are_never_generated(checkpoint_of: Callable[[str], Checkpoint]) -> None:
    """The model has more rows than the tokenizer has tokens, as after rounding the vocabulary up."""
    checkpoint = checkpoint_of("paper")
    config = checkpoint.config
    target = search_target(config, config.target_vocab_size - 3)
    assert set(target.never_generated) == {config.pad_id, config.start_id, 117, 118, 119}
