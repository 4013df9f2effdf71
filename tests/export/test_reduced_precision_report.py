"""What an export says of a reduced precision: why it was chosen, how often tokens agree, which layer is to blame."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from tests.export.conftest import make_checkpoint
from tests.export.test_passes import graph
from tests.export.test_precisions import IDS, TABLE, WEIGHT, keep_nothing, model
from tfexport.__main__ import main
from tfexport.agreement import compare_search, first_difference
from tfexport.bundle_readme import bundle_readme
from tfexport.cli.console import show_parity
from tfexport.errors import ExportError
from tfexport.export import ExportOptions, export_bundle
from tfexport.kernel_check import FloatProduct, products_in_float
from tfexport.passes.quantise_blocks import quantise_blocks
from tfexport.passes.quantise_int8 import Int8Form, quantise_int8
from tfexport.passes.quantised_products import quantised_products
from tfexport.precision import choose_precision
from tfexport_runtime.translation import Hypothesis, Translation
from tfexport_train.checkpoint import Checkpoint, save_checkpoint

OUTLIER = "decoder_layers.1.feed_forward.down.weight"
TEXTS = ["w5 w6 w7 w8 w9", "w10 w11 w12", "", "w33 w34", "w61 w60 w59 w58", "w100", "w45 w46 w47", "w90 w91 w92"]


def with_a_giant_weight() -> Checkpoint:
    """A hidden unit that is always 0 feeds weights of 10: nothing in float, and the scale of every column in 8 bits."""
    checkpoint = make_checkpoint("paper")
    weights = dict(checkpoint.weights)
    weights[OUTLIER] = weights[OUTLIER].clone()
    weights[OUTLIER][:, 0] = 10.0
    bias = OUTLIER.replace("down.weight", "up.bias")
    weights[bias] = torch.where(torch.arange(len(weights[bias])) == 0, torch.tensor(-100.0), weights[bias])
    return replace(checkpoint, weights=weights)


def test_the_layer_with_a_giant_weight_is_named_and_keeping_it_in_float_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = with_a_giant_weight()
    report = export_bundle(checkpoint, tmp_path / "b", ExportOptions(precision="int8", target="cpu", texts=TEXTS))
    rough = report.parity.agreement
    assert rough is not None
    assert rough.layers[0].weight == OUTLIER
    assert rough.layers[0].decibels < 20 < 25 < rough.layers[1].decibels
    assert report.manifest.parity["agreement"]["layers"][0]["weight"] == OUTLIER
    assert len(report.manifest.parity["agreement"]["layers"]) <= 8
    assert OUTLIER in bundle_readme(report.manifest, report.parity)
    show_parity(report.parity)
    assert OUTLIER in capsys.readouterr().out

    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    save_checkpoint(checkpoint, tmp_path / "ckpt.pt")
    files = [str(tmp_path / "ckpt.pt"), "-o", str(tmp_path / "kept"), "--text", str(tmp_path / "in.txt")]
    assert main(["export", *files, "--precision", "auto", "--keep-float", OUTLIER, "--json"]) == 0
    kept = json.loads(capsys.readouterr().out)
    assert (kept["precision"], kept["full_range"]) == ("int8", False)
    agreement = kept["parity"]["agreement"]
    assert agreement["positions"] > rough.positions
    assert agreement["compared"] == rough.compared
    assert OUTLIER not in [layer["weight"] for layer in agreement["layers"]]
    calls = {operator["operator"]: operator["calls"] for operator in kept["parity"]["operators"]}
    assert calls["MatMulIntegerToFloat"] == 2 * 6 - 1  # of two layers, but for the weight that was kept


@pytest.mark.parametrize(
    ("target", "chosen"),
    [(None, ("int8", False)), ("cpu", ("int8", False)), ("web", ("int8", False)), ("arm", ("int8", True))],
)
def test_auto_is_the_best_of_the_target_and_says_why(target: str | None, chosen: tuple[str, bool]) -> None:
    choice = choose_precision("auto", target, full_range=False)  # type: ignore[arg-type]
    assert (choice.precision, choice.full_range) == chosen
    assert "\n" not in str(choice)
    assert choice.reason
    assert choose_precision("fp32", target, full_range=False).precision == "fp32"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ExportOptions(precision="int8", target="cuda"), "choose --precision fp16"),
        (ExportOptions(target="cuda"), "--precision fp16, or --ops portable"),
        (ExportOptions(precision="int4", target="web"), "choose --precision int8"),
        (ExportOptions(precision="auto", operators="portable"), "leave --ops at ort"),
    ],
)
def test_what_a_target_cannot_run_is_refused(options: ExportOptions, words: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=words):
        export_bundle(make_checkpoint("paper"), tmp_path / "b", options)


def translation(*ids: int) -> Translation:
    return Translation((Hypothesis("", (), ids, 0.0, (), "eos"),))


def test_steps_of_first_difference_are_counted_over_sentences_that_differ() -> None:
    assert [first_difference((1, 2), other) for other in ((1, 2), (1,), (1, 2, 3), (4, 2))] == [None, 1, 2, 0]
    ours = [translation(1, 2), translation(1, 2), translation(1, 2), translation(1, 2)]
    found = compare_search("greedy", ours, [translation(1, 2), translation(1, 3), translation(1), translation(1, 2, 5)])
    assert (found.same, found.earliest, found.median) == (0.25, 1, 1)
    assert compare_search("greedy", ours, ours).median is None


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_quantised_products_lead_back_to_the_float_weight_and_its_input(precision: str, tmp_path: Path) -> None:
    made = model()
    quantised, _ = (
        quantise_int8(made, keep_nothing, Int8Form()) if precision == "int8" else quantise_blocks(made, 4, keep_nothing)
    )
    products = list(quantised_products(quantised))
    assert [(p.weight, p.y.name) for p in products] == [("weight", "y"), ("table", "logits")]
    assert [p.x.name for p in products] == ["x", "y"]
    assert products_in_float("decoder", products, profiled(quantised, tmp_path, ids=IDS)) == []


UNPACKED = """
<ir_version: 10, opset_import: ["" : 18]>
g (int64[n] ids) => (float[n, 64] y) {{
    x = Gather(table, ids)
    {unpacking}
    y = MatMul(x, w)
}}
"""


@pytest.mark.parametrize(
    ("unpacking", "found"),
    [
        ("values = Cast <to = 1> (packed)  w = Mul(values, scale)", [FloatProduct("decoder", "MatMul", "packed")]),
        ("w = DequantizeLinear(packed, scale)", []),  # ONNX Runtime makes a product of integers of it
    ],
)
def test_it_counts_what_ran_not_what_was_written(unpacking: str, found: list[FloatProduct], tmp_path: Path) -> None:
    packed = np.clip(np.round(WEIGHT * 30), -127, 127).astype(np.int8)
    text = UNPACKED.format(unpacking=unpacking)
    unpacked = graph(text, table=TABLE, packed=packed, scale=np.array(1 / 30, np.float32))
    next(node for node in unpacked.graph if node.op_type == "MatMul").name = "product"
    products = list(quantised_products(unpacked))
    assert [p.weight for p in products] == ["packed"]
    assert products_in_float("decoder", products, profiled(unpacked, tmp_path, ids=IDS)) == found


def profiled(made: ir.Model, folder: Path, **inputs: np.ndarray) -> list[dict[str, object]]:
    settings = onnxruntime.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(folder / "profile")
    data = ir.to_proto(made).SerializeToString()
    session = onnxruntime.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
    session.run(None, inputs)
    events: list[dict[str, object]] = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return events
