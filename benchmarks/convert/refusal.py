"""Which checkpoints the peers can be given."""

from __future__ import annotations

from tfexport_runtime.errors import TfexportError
from tfexport_train.config import EncoderDecoderConfig


def refuse_unknown_forms(config: EncoderDecoderConfig) -> None:
    """Raises TfexportError for a form that would not be the same function elsewhere."""
    same = {
        "positions": config.positions == "sinusoidal",
        "norm": config.norm == "layer_norm",
        "final_norm": config.final_norm == (config.norm_position == "pre"),
        "activation": config.activation in ("relu", "gelu"),
        "head_dim": config.head_size * config.num_heads == config.d_model,
    }
    wrong = [name for name, is_same in same.items() if not is_same]
    if wrong:
        raise TfexportError(f"the peers are not set up for this model's {', '.join(wrong)}; choose another checkpoint")
