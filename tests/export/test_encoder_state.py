"""The encoder's last hidden states, against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from tests.export.conftest import make_checkpoint
from tfexport.passes.encoder_state import ENCODER_STATE, encoder_state
from tfexport.passes.quantise_blocks import quantise_blocks
from tfexport.passes.quantise_int8 import REDUCED_RANGE, Int8Form, quantise_int8
from tfexport_runtime.bundle import Bundle

BundleOf = Callable[[str, str], Bundle]
IDS = np.array([[5, 9, 17, 2], [6, 2, 0, 0]])
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.int32)


def expected_states(form: str) -> npt.NDArray[np.float32]:
    """On real tokens: [real tokens, d_model]."""
    with torch.inference_mode():
        states = make_checkpoint(form).build_model().encode(torch.from_numpy(IDS), torch.from_numpy(MASK) == 1)
    return states.numpy()[MASK == 1]


def states_of(bundle: Bundle, encoder: ir.Model) -> npt.NDArray[np.float32]:
    """On real tokens."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.add_session_config_entry("session.model_external_initializers_file_folder_path", str(bundle.folder))
    proto = ir.to_proto(encoder).SerializeToString()
    session = onnxruntime.InferenceSession(proto, settings, providers=["CPUExecutionProvider"])
    (states,) = session.run([ENCODER_STATE], {"input_ids": IDS, "attention_mask": MASK})
    return states[MASK == 1]


def with_states(bundle: Bundle, form: str) -> ir.Model:
    return encoder_state(ir.load(bundle.path("encoder.onnx")), make_checkpoint(form).config)


# paper: no final norm, biases. swiglu: a final norm, no biases, and heads as wide together as the model is not.
@pytest.mark.parametrize(
    ("form", "operators"), [("paper", "ort"), ("paper", "portable"), ("swiglu", "ort"), ("relative", "portable")]
)
def test_states_equal_pytorch(form: str, operators: str, bundle_of: BundleOf) -> None:
    bundle = bundle_of(form, operators)
    states = states_of(bundle, with_states(bundle, form))
    expected = expected_states(form)
    np.testing.assert_allclose(states, expected, atol=1e-6 * max(1.0, float(np.abs(expected).max())))


REDUCED: dict[str, tuple[Callable[[ir.Model], tuple[ir.Model, bool]], float]] = {  # and the noise that is allowed
    "int8": (lambda model: quantise_int8(model, lambda weight: False, Int8Form(REDUCED_RANGE)), 0.05),
    "int8-weight": (lambda model: quantise_blocks(model, 8, lambda weight: False), 0.02),
    "int4": (lambda model: quantise_blocks(model, 4, lambda weight: False), 0.3),
}


@pytest.mark.parametrize("precision", REDUCED)
def test_reduced_precisions_give_them_as_well(precision: str, bundle_of: BundleOf) -> None:
    bundle, (quantise, noise) = bundle_of("paper", "ort"), REDUCED[precision]
    encoder, _ = quantise(with_states(bundle, "paper"))
    states = states_of(bundle, encoder)
    expected = expected_states("paper")
    assert 0 < np.square(states - expected).mean() ** 0.5 < noise * expected.std()
