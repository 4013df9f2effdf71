"""What weights a configuration needs, without allocating any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tfexport.checkpoints.imported import Shape
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.model import EncoderDecoder


class _WithoutRandomNumbers(TorchFunctionMode):
    """Leaves out the initialisation of weights: on tensors without memory it means nothing and loads a compiler."""

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (torch.Tensor.normal_, torch.Tensor.uniform_):
            return args[0]
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def expected_shapes(config: EncoderDecoderConfig) -> dict[str, Shape]:
    """Of every weight, by its name, in the order of the module."""
    learned = config.positions == "learned"
    with torch.device("meta"), _WithoutRandomNumbers():
        # A computed table is no weight, and computing it without memory loads the compiler as well.
        model = EncoderDecoder(config.with_changes({"positions": "learned"}))
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    return {name: shape for name, shape in shapes.items() if learned or not name.endswith("position_table")}


def model_without_memory(config: EncoderDecoderConfig) -> EncoderDecoder:
    """A module whose weights are not initialised, for load_state_dict(..., assign=True)."""
    with _WithoutRandomNumbers():
        return EncoderDecoder(config)
