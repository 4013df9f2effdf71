"""Fixed steps for activations: what range a text gives, what the graph becomes, and that quality is looked at."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.export.conftest import make_checkpoint
from tests.export.test_passes import graph, run
from tfexport.__main__ import main
from tfexport.calibration import TEXTS, activation_ranges, evenly_spaced
from tfexport.errors import ExportError
from tfexport.export import ExportOptions, export_bundle
from tfexport.float_run import FloatRun
from tfexport.formats.onnx_pair import rounded_once
from tfexport.formats.read_graph import read_graph
from tfexport.passes.double_sums import rough_operators
from tfexport.passes.products import product_of
from tfexport.passes.quantise_int8 import ActivationRange, Int8Form, quantise_int8
from tfexport.passes.quantised_products import quantised_products
from tfexport.samples import encoder_ids
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.options import TranslationOptions
from tfexport_train.checkpoint import Checkpoint, save_checkpoint
from tfexport_train.evaluate import TorchTranslator, search_target

LINES = ["w5 w6 w7 w8 w9", "w10 w11 w12", "", "w33", "w61 w60 w59 w58 w57 w56 w54", "w100 w45", "w46 w47 w90 w91 w92"]


def graphs_of(bundle: Bundle) -> dict[str, ir.Model]:
    return {name: ir.external_data.load_to_model(read_graph(bundle, name)) for name in ("encoder", "decoder")}


def ranges_in_torch(checkpoint: Checkpoint, lines: list[str]) -> dict[str, tuple[float, float]]:
    """By name of the weight: what every Linear of the PyTorch model reads while it translates the lines one by one."""
    translator = TorchTranslator.from_checkpoint(checkpoint)
    seen: dict[str, list[float]] = defaultdict(lambda: [0.0])

    def watch(name: str) -> Callable[..., None]:
        def hook(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            seen[name] += [float(inputs[0].min()), float(inputs[0].max())]

        return hook

    for name, module in translator.model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(watch(f"{name}.weight"))
    for line in lines:
        ids = encoder_ids(line, translator.vocabularies)
        longest = min(2 * len(ids) + 10, checkpoint.config.max_positions)
        translator.translate([line], TranslationOptions(max_length=longest, max_length_ratio=None))
    return {name: (min(values), max(values)) for name, values in seen.items()}


@pytest.mark.parametrize("form", ["paper", "swiglu"])
def test_the_ranges_are_those_of_pytorch_without_padding_and_without_what_follows_an_end(
    form: str, bundle_of: Callable[[str, str], Bundle]
) -> None:
    checkpoint = make_checkpoint(form)
    graphs = graphs_of(bundle_of(form, "ort"))
    vocabularies = TorchTranslator.from_checkpoint(checkpoint).vocabularies
    expected = ranges_in_torch(checkpoint, [line for line in LINES if line])
    compared = 0
    # One by one, as the limit of steps is that of the longest sentence of a batch; then the encoder with padding.
    sources = [ids for line in LINES if (ids := encoder_ids(line, vocabularies))]
    config = checkpoint.config
    target = search_target(config, vocabularies.target.size, checkpoint.target.prefix_ids)
    alone = [activation_ranges(graphs, target, config.pad_id, [source]) for source in sources]
    together = activation_ranges(graphs, target, config.pad_id, sources)
    for name, model in graphs.items():
        for product in (found for node in model.graph if (found := product_of(node)) is not None):
            weight = str(product.weight.name).removesuffix(".merged")
            if weight not in expected:
                continue  # the projection on a tied table is no module of its own
            x = str(product.x.name)
            ranges = [ranges[name][x] for ranges in alone]
            found = min(r.lowest for r in ranges), max(r.highest for r in ranges)
            np.testing.assert_allclose(found, expected[weight], rtol=1e-4, atol=1e-5)
            if name == "encoder":
                both = together[name][x]
                np.testing.assert_allclose((both.lowest, both.highest), expected[weight], rtol=1e-4, atol=1e-5)
            compared += 1
    assert compared > 8


def test_a_prefix_that_holds_the_end_token_does_not_end_a_sentence(bundle_of: Callable[[str, str], Bundle]) -> None:
    config, steps = make_checkpoint("paper").config, []
    target = search_target(config, config.target_vocab_size, (config.eos_id, 8))

    def look(graph: str, name: str, array: np.ndarray, real: np.ndarray) -> None:
        if name == "logits":
            steps.append(real.all())

    graphs = graphs_of(bundle_of("paper", "ort"))
    FloatRun(graphs, target, config.pad_id, lambda graph, value: False, look).translate([[5, 6]], most_generated=2)
    assert len(steps) >= 3  # `start`, `eos`, 8
    assert all(steps[:3])


PRODUCTS = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 16] x) => (float[n, 8] z) {
    h = MatMul(x, up)
    b = Add(h, bias)
    r = Relu(b)
    y = MatMul(r, down)
    z = Add(y, other)
}
"""
GENERATOR = np.random.default_rng(4)
ARRAYS = {
    "up": GENERATOR.standard_normal((16, 32)).astype(np.float32),
    "bias": GENERATOR.standard_normal(32).astype(np.float32),
    "down": GENERATOR.standard_normal((32, 8)).astype(np.float32),
    "other": GENERATOR.standard_normal(8).astype(np.float32),
}
X = GENERATOR.standard_normal((7, 16)).astype(np.float32)


def hidden(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ ARRAYS["up"] + ARRAYS["bias"], 0)


def quantised(bias_inside: bool = True, x_range: tuple[float, float] = (float(X.min()), float(X.max()))) -> ir.Model:
    ranges = {"x": ActivationRange(*x_range), "r": ActivationRange(0.0, float(hidden(X).max()))}
    model = graph(PRODUCTS, **ARRAYS)
    for node in model.graph:
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    made, modified = quantise_int8(model, lambda weight: False, Int8Form(ranges=ranges, bias_inside=bias_inside))
    assert modified
    return made


def test_a_product_takes_two_operators_and_its_bias_is_inside() -> None:
    model = quantised()
    product = ["QuantizeLinear", "MatMulIntegerToFloat"]
    assert [node.op_type for node in model.graph] == [*product, "Relu", *product]
    expected = hidden(X) @ ARRAYS["down"] + ARRAYS["other"]
    assert np.linalg.norm(run(model, x=X)[0] - expected) < 0.06 * np.linalg.norm(expected)


def test_a_row_is_the_same_whatever_lies_beside_it() -> None:
    model = quantised()
    together = run(model, x=np.concatenate([X, 50 * X]))[0]
    for i, row in enumerate(X):
        np.testing.assert_array_equal(run(model, x=row[None])[0][0], together[i])


def test_what_lies_outside_of_the_range_is_cut_off() -> None:
    model = quantised(x_range=(-0.5, 1.0))
    np.testing.assert_array_equal(run(model, x=X)[0], run(model, x=np.clip(X, -0.5, 1.0))[0])


def test_a_bias_outside_gives_the_same_numbers() -> None:
    apart = quantised(bias_inside=False)
    assert [node.op_type for node in apart.graph].count("Add") == 2
    np.testing.assert_allclose(run(apart, x=X)[0], run(quantised(), x=X)[0], rtol=1e-5, atol=1e-5)


def test_an_input_without_a_range_keeps_a_scale_a_row() -> None:
    made, _ = quantise_int8(
        graph(PRODUCTS, **ARRAYS), lambda weight: False, Int8Form(ranges={"r": ActivationRange(0.0, 9.0)})
    )
    kinds = [node.op_type for node in made.graph]
    assert (kinds.count("ReduceMax"), kinds.count("QuantizeLinear")) == (1, 2)


@given(st.floats(-1e6, 0, width=32), st.floats(0, 1e6, width=32))
def test_zero_is_exact_in_every_range_and_both_ends_are_within_a_step(lowest: float, highest: float) -> None:
    scale, zero = ActivationRange(lowest, highest).steps()
    assert 0 <= zero <= 255
    assert abs((0 - float(zero)) * float(scale) - lowest) <= float(scale)
    assert highest - (255 - float(zero)) * float(scale) <= float(scale)


def test_products_lead_back_to_their_weights_inputs_and_biases() -> None:
    products = list(quantised_products(quantised()))
    assert [(p.weight, p.x.name, p.y.name) for p in products] == [("up", "x", "b"), ("down", "r", "z")]
    for product, bias in zip(products, ("bias", "other"), strict=True):
        assert product.bias is not None
        np.testing.assert_array_equal(product.bias.numpy(), ARRAYS[bias])


DIVIDED = PRODUCTS.replace("x) =>", "x0) =>").replace("h = MatMul", "two = Add(x0, x0)  x = Div(x0, two)  h = MatMul")


def test_a_division_of_the_model_is_not_taken_for_a_scale() -> None:
    made, _ = quantise_int8(
        graph(DIVIDED, **ARRAYS), lambda w: False, Int8Form(ranges={"x": ActivationRange(0.0, 1.0)})
    )
    assert next(iter(quantised_products(made))).x.name == "x"


def test_lines_are_taken_from_the_whole_text() -> None:
    assert evenly_spaced(["a", " ", "b"]) == ["a", "b"]
    taken = [int(line) for line in evenly_spaced([str(i) for i in range(10 * TEXTS)])]
    assert len(taken) == TEXTS
    assert taken == list(range(0, 10 * TEXTS, 10))


def test_a_calibrated_bundle_has_fixed_steps_throughout_and_says_how_good_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_checkpoint(make_checkpoint("paper"), tmp_path / "ckpt.pt")
    text, bundle = tmp_path / "in.txt", tmp_path / "bundle"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    flags = ["--precision", "int8", "--calibrate", str(text), "--text", str(text), "--json"]
    assert main(["export", str(tmp_path / "ckpt.pt"), "-o", str(bundle), *flags]) == 0
    for name in ("encoder", "decoder"):
        model = onnx.load(bundle / f"{name}.onnx", load_external_data=False)
        assert "ReduceMax" not in {node.op_type for node in model.graph.node}
    agreement = json.loads(capsys.readouterr().out)["parity"]["agreement"]
    assert agreement["positions"] > 0.8
    assert min(layer["decibels"] for layer in agreement["layers"]) > 20  # the bias is not taken for noise


def test_nothing_of_it_rounds_otherwise_on_another_processor(bundle_of: Callable[[str, str], Bundle]) -> None:
    config, graphs = make_checkpoint("gelu").config, graphs_of(bundle_of("gelu", "ort"))
    target = search_target(config, config.target_vocab_size)
    graphs = {name: rounded_once(model) for name, model in graphs.items()}
    ranges = activation_ranges(graphs, target, config.pad_id, [[5, 6, 7], [8]])
    for name, model in graphs.items():
        made, _ = quantise_int8(model, lambda weight: False, Int8Form(ranges=ranges[name], bias_inside=False))
        assert rough_operators(made) == []
        assert "ReduceMax" not in {node.op_type for node in made.graph}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "fp32"}, "--calibrate is of int8, not of fp32"),
        ({"precision": "auto", "target": "cuda"}, "--calibrate is of int8, not of fp16"),
        ({"precision": "int8", "format": "single"}, "formats onnx and ort"),
        ({"precision": "int8", "calibration": ["", " "]}, "text to calibrate with is empty"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(
    changes: dict[str, Any], message: str, tiny_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message):
        export_bundle(tiny_checkpoint, tmp_path / "b", ExportOptions(**{"calibration": LINES, **changes}))
    assert list(tmp_path.iterdir()) == []


def test_activations_that_are_no_numbers_are_refused(bundle_of: Callable[[str, str], Bundle]) -> None:
    config, graphs = make_checkpoint("paper").config, graphs_of(bundle_of("paper", "ort"))
    bias = graphs["encoder"].graph.initializers["encoder_layers.0.feed_forward.up.bias"]
    assert bias.const_value is not None
    bias.const_value = ir.tensor(np.full_like(bias.const_value.numpy(), np.inf))
    with pytest.raises(ExportError, match="encoder is not a number on the text"):
        activation_ranges(graphs, search_target(config, config.target_vocab_size), config.pad_id, [[5, 6]])
