"""Maximum-entropy values by hand."""

import math

import pytest
import torch

from rookery.equations.distributional import midpoints, quantile_huber
from rookery.equations.distributions import masked_logits
from rookery.equations.soft import entropy_of, soft_value, temperature_loss, without_largest


def test_the_soft_value_is_the_expected_value_and_alpha_times_the_entropy():
    # π = (¼, ¾), Q = (1, 3): E[Q] = 2.5, H = ¼ ln 4 + ¾ ln 4/3 = 0.346574 + 0.215762 = 0.562335
    logp = torch.tensor([[0.25, 0.75]]).log()
    assert entropy_of(logp).item() == pytest.approx(0.562335, abs=1e-6)
    assert soft_value(torch.tensor([[1.0, 3.0]]), logp, 0.5).item() == pytest.approx(2.5 + 0.5 * 0.562335, abs=1e-6)


def test_an_illegal_action_adds_nothing_to_value_entropy_and_gradient():
    logits = torch.tensor([[0.0, 5.0, 0.0]], requires_grad=True)
    logp = masked_logits(logits, torch.tensor([[1, 0, 1]])).log_softmax(-1)
    # the two legal actions are equally likely: E[Q] = (1 + 2) / 2, H = ln 2
    value = soft_value(torch.tensor([[1.0, 1e6, 2.0]]), logp, 0.1)
    assert value.item() == pytest.approx(1.5 + 0.1 * math.log(2))
    assert entropy_of(logp).item() == pytest.approx(math.log(2))
    value.sum().backward()
    # dV/dl_a = π_a (Q_a − α log π_a − V): ½ (1 − 1.5) and ½ (2 − 1.5)
    assert logits.grad.tolist()[0] == pytest.approx([-0.25, 0.0, 0.25], abs=1e-6)


def test_the_largest_quantiles_are_left_out_of_the_pool_whoever_gave_them():
    # critic 1 gave 1, 9, 4; critic 2 gave 8, 7, 2: pooled 1 2 4 7 8 9
    z = torch.tensor([[[1.0, 9.0, 4.0]], [[8.0, 7.0, 2.0]]])  # [N, B, M]
    assert without_largest(z, 0).tolist() == [[1.0, 2.0, 4.0, 7.0, 8.0, 9.0]]
    assert without_largest(z, 1).tolist() == [[1.0, 2.0, 4.0, 7.0]]
    assert without_largest(z, 2).tolist() == [[1.0, 2.0]]


def test_rows_of_a_batch_are_not_mixed_when_quantiles_are_pooled():
    z = torch.tensor([[[1.0, 2.0], [30.0, 40.0]], [[3.0, 4.0], [10.0, 20.0]]])  # [N = 2, B = 2, M = 2]
    assert without_largest(z, 1).tolist() == [[1.0, 2.0], [10.0, 20.0]]


def test_the_quantile_loss_of_an_ensemble_against_one_pool_of_targets():
    # one critic with θ = (0, 1) at τ = (¼, ¾), targets 2 and 0.5
    # θ = 0: u = 2 → ¼ · 1.5 = 0.375, u = 0.5 → ¼ · 0.125 = 0.03125, mean 0.203125
    # θ = 1: u = 1 → ¾ · 0.5 = 0.375, u = −0.5 → ¼ · 0.125 = 0.03125, mean 0.203125
    quantiles = torch.tensor([[[0.0, 1.0]]]).expand(3, 1, 2)  # [N, B, M]
    loss = quantile_huber(quantiles, torch.tensor([[2.0, 0.5]]), midpoints(2, "cpu"))
    assert loss.shape == (3, 1)
    assert loss.flatten().tolist() == pytest.approx([0.40625] * 3)


def test_the_temperature_grows_where_there_is_less_entropy_than_wanted() -> None:
    """log α = 2, log π = −1, −3 and H̄ = −1: −2 · mean(−2, −4) = 6; ∂J/∂log α = −mean(−2,
    −4) = 3, so descent lowers α."""
    log_alpha = torch.tensor(2.0, requires_grad=True)
    loss = temperature_loss(log_alpha, torch.tensor([-1.0, -3.0]), -1.0)
    assert loss.item() == 6.0
    (slope,) = torch.autograd.grad(loss, log_alpha)
    assert slope.item() == 3.0
    (slope,) = torch.autograd.grad(temperature_loss(log_alpha, torch.tensor([1.5]), -1.0), log_alpha)
    assert slope.item() == -0.5  # entropy −1½ where −1 is wanted: α grows
