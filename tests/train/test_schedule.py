from __future__ import annotations

import math

import pytest

from tfexport_train.schedule import learning_rate
from tfexport_train.settings import ScheduleName, TrainingSettings


def rates(schedule: ScheduleName, steps: list[int], **changes: float) -> list[float]:
    settings = TrainingSettings(schedule=schedule, max_steps=100, warmup=10, lr=0.5, **changes)  # type: ignore[arg-type]
    return [learning_rate(step, settings, 64) for step in steps]


def test_the_paper_rises_linearly_and_falls_with_the_root() -> None:
    expected = [2 * 64**-0.5 * min(s**-0.5, s * 10**-1.5) for s in (1, 5, 10, 11, 40)]
    assert rates("paper", [1, 5, 10, 11, 40], factor=2.0) == pytest.approx(expected)


def test_inverse_square_root_peaks_at_the_end_of_the_warm_up() -> None:
    assert rates("inverse_sqrt", [1, 5, 10, 40, 90]) == pytest.approx([0.05, 0.25, 0.5, 0.25, 0.5 / 3])


def test_constant_stays_after_the_warm_up() -> None:
    assert rates("constant", [1, 10, 11, 500]) == pytest.approx([0.05, 0.5, 0.5, 0.5])


def test_linear_falls_to_its_last_positive_value_at_max_steps() -> None:
    assert rates("linear", [5, 10, 100, 101, 200]) == pytest.approx([0.25, 0.5, 0.5 / 91, 0.0, 0.0])


def test_cosine_is_half_way_down_in_the_middle() -> None:
    values = rates("cosine", [10, 100, 101])
    assert values[0] == pytest.approx(0.5)
    assert 0 < values[1] < 0.001
    assert values[2] == pytest.approx(0.0)
    settings = TrainingSettings(schedule="cosine", max_steps=109, warmup=10, lr=0.5)
    assert learning_rate(60, settings, 64) == pytest.approx(0.25 * (1 + math.cos(math.pi / 2)))
