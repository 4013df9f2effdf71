"""Learning rate by step. Steps count from 1; each function is pure, so that a resumed run needs only its step."""

from __future__ import annotations

import math

from tfexport_train.settings import TrainingSettings


def learning_rate(step: int, settings: TrainingSettings, d_model: int) -> float:
    """The rate of update number `step` (1, 2, ...) under `settings.schedule`."""
    warmup, peak = settings.warmup, settings.lr
    match settings.schedule:
        case "paper":
            return settings.factor * paper(step, warmup, d_model)
        case "inverse_sqrt":
            return peak * min(step / warmup, math.sqrt(warmup / step))
        case "constant":
            return peak * min(step / warmup, 1.0)
        case "linear":
            return peak * min(step / warmup, 1 - _progress(step, settings))
        case "cosine":
            return peak * min(step / warmup, (1 + math.cos(math.pi * _progress(step, settings))) / 2)


def paper(step: int, warmup: int, d_model: int) -> float:
    """d^-0.5 * min(step^-0.5, step * warmup^-1.5) (section 5.3)."""
    return float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))


def _progress(step: int, settings: TrainingSettings) -> float:
    """0 at the end of the warm-up, 1 one step behind the last, so that the last step still moves the weights."""
    assert settings.max_steps is not None  # the settings were checked
    return min(max((step - settings.warmup) / max(settings.max_steps + 1 - settings.warmup, 1), 0.0), 1.0)
