"""PyTorch to ONNX: the two graphs of a model, traced with sizes that torch.export cannot mistake for constants."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.export import Dim

from tfexport.graphs.fixed import FixedDecoderGraph, FixedEncoderGraph
from tfexport.graphs.modules import EncoderGraph, GrowingDecoderGraph, InPlaceDecoderGraph
from tfexport.graphs.signature import (
    FixedShape,
    GraphSignature,
    cache_head_size,
    decoder_signature,
    encoder_signature,
    fixed_decoder_signature,
    fixed_encoder_signature,
)
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.model import EncoderDecoder

Array = npt.NDArray[Any]

# Sizes of the example inputs: all different, none 0 or 1 (which torch.export takes as constants), and rows a multiple
# of the batch.
_BATCH, _BEAMS, _SOURCE, _PAST, _CANDIDATES = 3, 2, 7, 5, 4


def trace_encoder(model: EncoderDecoder, fused: bool, opset: int) -> ir.Model:
    """The encoder graph. fused: with com.microsoft operators."""
    source = torch.ones(_BATCH, _SOURCE, dtype=torch.int64)
    axes = {0: Dim("batch"), 1: Dim("source", max=model.config.max_positions)}
    return trace_module(
        EncoderGraph(model, fused),
        (source, source.int()),
        {"input_ids": axes, "attention_mask": axes},
        encoder_signature(model.config),
        opset,
    )


def trace_decoder(model: EncoderDecoder, in_place: bool, opset: int) -> ir.Model:
    """The step graph, with the cache in place or growing."""
    config = model.config
    rows, batch, source, past = Dim("rows"), Dim("batch"), Dim("source"), Dim("past", min=0)
    layers = config.num_decoder_layers
    total: tuple[Tensor, ...] = (torch.tensor([_PAST], dtype=torch.int32),) if in_place else ()
    arguments = (
        torch.ones(_BATCH * _BEAMS, 1, dtype=torch.int64),
        torch.full((_BATCH * _BEAMS,), _PAST - 1, dtype=torch.int32),
        *total,
        torch.ones(_BATCH, _SOURCE, dtype=torch.int32),
        torch.zeros(1, config.target_vocab_size),
        torch.tensor([_CANDIDATES]),
        _key_values(config, _BATCH * _BEAMS, _PAST, cache_head_size(config, in_place)),
        _key_values(config, _BATCH, _SOURCE, config.head_size),
    )
    shapes = {
        "input_ids": {0: rows},
        "past_lengths": {0: rows},
        **({"total_length": None} if in_place else {}),
        "encoder_attention_mask": {0: batch, 1: source},
        "logit_bias": None,
        "num_candidates": None,
        "past": [({0: rows, 2: past},) * 2] * layers,
        "cross": [({0: batch, 2: source},) * 2] * layers,
    }
    module = InPlaceDecoderGraph(model) if in_place else GrowingDecoderGraph(model)
    return trace_module(module, arguments, shapes, decoder_signature(config, in_place), opset)


def trace_fixed(model: EncoderDecoder, shape: FixedShape, opset: int) -> dict[str, ir.Model]:
    """The encoder and the decoder with numbers for shapes."""
    config, rows = model.config, shape.rows
    source, mask = (torch.ones(1, shape.source, dtype=torch.int32) for _ in range(2))  # one tensor would be one input
    step = (
        torch.ones(rows, 1, dtype=torch.int32),
        torch.zeros(rows, dtype=torch.int32),
        torch.ones(rows, shape.source, dtype=torch.int32),
        torch.zeros(1, config.target_vocab_size),
        _key_values(config, rows, shape.target, config.head_size),
        _key_values(config, rows, shape.source, config.head_size),
    )
    encoder, decoder = fixed_encoder_signature(config, shape), fixed_decoder_signature(config, shape)
    return {
        "encoder": trace_module(FixedEncoderGraph(model, shape), (source, mask), None, encoder, opset),
        "decoder": trace_module(FixedDecoderGraph(model, shape), step, None, decoder, opset),
    }


def trace_module(
    module: nn.Module, arguments: tuple[Any, ...], shapes: dict[str, Any] | None, signature: GraphSignature, opset: int
) -> ir.Model:
    """The forward pass of a module. arguments: examples, `shapes` their axes that vary, by the names of parameters."""
    with _eval_mode(module), torch.no_grad(), _quiet(), _without_collector():
        program = torch.onnx.export(
            module,
            arguments,
            dynamo=True,
            opset_version=opset,
            dynamic_shapes=shapes,
            input_names=[t.name for t in signature.inputs],
            output_names=[t.name for t in signature.outputs],
            verbose=False,
        )
    assert program is not None
    model = program.model
    _declare(model, signature)
    _name_weights(model, module)
    return model


def _declare(model: ir.Model, signature: GraphSignature) -> None:
    """Writes the signature's shapes over those of the trace, which know the sizes of the example."""
    values = [*model.graph.inputs, *model.graph.outputs]
    for value, wanted in zip(values, [*signature.inputs, *signature.outputs], strict=True):
        assert value.name == wanted.name, f"traced {value.name}, expected {wanted.name}"
        value.shape = ir.Shape(wanted.shape)
        value.dtype = ir.DataType[{"int64": "INT64", "int32": "INT32", "float32": "FLOAT"}[wanted.dtype]]


def _name_weights(model: ir.Model, module: nn.Module) -> None:
    """Weights get the names of the module's parameters; the tracer numbers those that it has transposed."""
    parameters: dict[bytes, list[tuple[str, Array]]] = {}
    for name, parameter in module.named_parameters():
        array = parameter.detach().numpy()
        for form in (array, array.T):
            if form.ndim == 2:
                parameters.setdefault(_first_row(form), []).append((name.removeprefix("model."), form))
    for value in list(model.graph.initializers.values()):
        name, tensor = (value.name or "").removeprefix("model."), value.const_value
        if tensor is not None and len(tensor.shape) == 2:
            array = tensor.numpy()
            alike = parameters.get(_first_row(array), [])
            name = next((other for other, form in alike if np.array_equal(form, array)), name)
        if name not in model.graph.initializers:
            value.name = name


def _first_row(array: Array) -> bytes:
    """Tells almost all matrices apart, and reads next to nothing of them."""
    return array[:1].tobytes()


def _key_values(config: EncoderDecoderConfig, rows: int, length: int, head_size: int) -> list[tuple[Tensor, Tensor]]:
    shape = (rows, config.num_heads, length, head_size)
    return [(torch.zeros(shape), torch.zeros(shape)) for _ in range(config.num_decoder_layers)]


@contextlib.contextmanager
def _eval_mode(module: nn.Module) -> Iterator[None]:
    """Dropout must not reach a graph; every sub-module gets its own mode back."""
    training = [m for m in module.modules() if m.training]
    module.eval()
    try:
        yield
    finally:
        for m in training:
            m.training = True


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter reports on stdout and warns about its own internals; errors still come through."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch.onnx").setLevel(level)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Tracing makes objects that live until its end; to look for cycles among them again and again takes a sixth."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
