"""The fused loss against the distribution of the tutorials, written out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tfexport_train.loss as loss_module
from tfexport_train.loss import projected_loss, smoothing_entropy


def smoothed_distribution(targets: torch.Tensor, vocab_size: int, smoothing: float, pad_id: int) -> torch.Tensor:
    q = torch.full((len(targets), vocab_size), smoothing / (vocab_size - 2), dtype=torch.float64)
    q[:, pad_id] = 0
    q[torch.arange(len(targets)), targets] = 1 - smoothing
    return q


def case(bias: bool, pad_id: int = 0) -> tuple[torch.Tensor, nn.Linear, torch.Tensor]:
    torch.manual_seed(5)
    hidden = torch.randn(17, 6, requires_grad=True)
    targets = torch.randint(0, 10, (17,))
    targets[targets >= pad_id] += 1
    return hidden, nn.Linear(6, 11, bias=bias), targets


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("pad_id", [0, 4])
@pytest.mark.parametrize("chunk", [11, 55, 1 << 20])
def test_value_and_gradients_equal_the_plain_form(
    bias: bool, smoothing: float, pad_id: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "CHUNK", chunk)
    hidden, linear, targets = case(bias, pad_id)
    parameters = [hidden, *linear.parameters()]
    log_probs = F.log_softmax(linear(hidden).double(), -1)
    plain = -(smoothed_distribution(targets, 11, smoothing, pad_id) * log_probs).sum()
    expected = torch.autograd.grad(plain / 17, parameters)
    sums = projected_loss(hidden, linear, targets, smoothing, pad_id)
    assert sums.smoothed.item() == pytest.approx(plain.item(), rel=1e-5)
    assert sums.nll.item() == pytest.approx(F.nll_loss(log_probs, targets, reduction="sum").item(), rel=1e-5)
    for ours, theirs in zip(torch.autograd.grad(sums.smoothed / 17, parameters), expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


def test_it_is_the_kullback_leibler_divergence_plus_a_constant() -> None:
    hidden, linear, targets = case(False)
    q = smoothed_distribution(targets, 11, 0.1, 0)
    divergence = F.kl_div(F.log_softmax(linear(hidden).double(), -1), q, reduction="sum")
    ours = projected_loss(hidden, linear, targets, 0.1, 0).smoothed
    assert ours.item() - divergence.item() == pytest.approx(17 * smoothing_entropy(0.1, 11), rel=1e-4)


def test_the_best_prediction_costs_the_entropy() -> None:
    q = smoothed_distribution(torch.tensor([3]), 11, 0.1, 0)[0]
    linear = nn.Linear(11, 11, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(11))
    hidden = q.log().clamp_min(-80).float()[None]
    assert projected_loss(hidden, linear, torch.tensor([3]), 0.1, 0).smoothed.item() == pytest.approx(
        smoothing_entropy(0.1, 11), rel=1e-4
    )
    assert smoothing_entropy(0.0, 11) == 0.0


def test_no_position_gives_zero() -> None:
    hidden = torch.zeros(0, 6, requires_grad=True)
    linear = nn.Linear(6, 11)
    sums = projected_loss(hidden, linear, torch.zeros(0, dtype=torch.int64), 0.1, 0)
    sums.smoothed.backward()
    assert sums.smoothed.item() == 0
    assert linear.weight.grad is not None
    assert linear.weight.grad.eq(0).all()


def test_a_target_of_probability_zero_costs_much_but_not_infinity() -> None:
    linear = nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(4))
    hidden = torch.tensor([[0.0, -torch.inf, 1.0, 2.0]], requires_grad=True)
    eye_hidden = torch.nan_to_num(hidden.detach(), neginf=-3e38).requires_grad_()
    sums = projected_loss(eye_hidden, linear, torch.tensor([1]), 0.1, 0)
    sums.smoothed.backward()
    assert sums.smoothed.isfinite()
    assert sums.smoothed.item() > 1000
    assert eye_hidden.grad is not None
    assert eye_hidden.grad.isfinite().all()


def test_evaluation_makes_no_gradient() -> None:
    hidden, linear, targets = case(True)
    with torch.inference_mode():
        sums = projected_loss(hidden, linear, targets, 0.1, 0)
    assert not sums.smoothed.requires_grad
