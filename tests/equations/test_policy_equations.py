"""PPO and its gauges: numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rookery.equations.policy import (
    clip_fraction,
    explained_variance,
    kl_estimate,
    normalise,
    ppo_policy_loss,
    ppo_value_loss,
)


def row(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


RATIO = row(1.0, 1.5, 0.5, 1.5, 0.5, 1.1)
ADVANTAGE = row(2, 2, 2, -2, -2, -2)


def test_ppo_is_pessimistic_about_both_signs_of_the_advantage() -> None:
    # −min(ρA, clip(ρ, 0.8, 1.2) A):
    # A = 2:   ρ 1 → −2;  ρ 1.5 → −min(3, 2.4) = −2.4;  ρ 0.5 → −min(1, 1.6) = −1
    # A = −2:  ρ 1.5 → −min(−3, −2.4) = 3;  ρ 0.5 → −min(−1, −1.6) = 1.6;  ρ 1.1 → 2.2
    loss = ppo_policy_loss(RATIO.log(), ADVANTAGE, 0.2)
    torch.testing.assert_close(loss, row(-2, -2.4, -1, 3, 1.6, 2.2))


def test_ppo_gives_no_gradient_where_it_is_clipped_and_the_policy_gradient_elsewhere() -> None:
    # dL/d log ρ = −ρ A where not clipped: −2, (clipped) 0, −1, 3, (clipped) 0, 2.2
    log_ratio = RATIO.log().requires_grad_()
    ppo_policy_loss(log_ratio, ADVANTAGE, 0.2).sum().backward()
    torch.testing.assert_close(log_ratio.grad, row(-2, 0, -1, 3, 0, 2.2))


def test_the_clip_may_be_a_knob() -> None:
    number, knob = (ppo_policy_loss(RATIO.log(), ADVANTAGE, clip) for clip in (0.2, torch.tensor(0.2)))
    assert torch.equal(number, knob)
    value, old, target = row(1, 2), row(0, 0), row(3, 0)
    assert torch.equal(ppo_value_loss(value, old, target, 0.5), ppo_value_loss(value, old, target, torch.tensor(0.5)))


def test_dual_clip_bounds_the_loss_of_a_bad_action_that_became_likely() -> None:
    # A = −1, ρ = 10: −min(−10, −1.2) = 10, bounded by c |A| = 3, and flat there.  ρ = 2: 2 < 3, untouched.
    # A = 1, ρ = 10: −min(10, 1.2) = −1.2
    log_ratio = row(10, 2, 10).log().requires_grad_()
    loss = ppo_policy_loss(log_ratio, row(-1, -1, 1), 0.2, dual_clip=3.0)
    torch.testing.assert_close(loss, row(3, 2, -1.2))
    loss.sum().backward()
    torch.testing.assert_close(log_ratio.grad, row(0, 2, 0))


def test_value_loss_is_half_the_square() -> None:
    assert ppo_value_loss(row(1, 3), row(0, 0), row(2, 1)).tolist() == [0.5, 2.0]


def test_value_clip_takes_the_larger_loss() -> None:
    # V = 1, old 0, clip 0.5 → V_clip = 0.5.   target 2: max(½·1, ½·1.5²) = 1.125;   target −1: max(½·4, ½·1.5²) = 2
    # V = 0.3 stays inside: both are ½·(0.3 − 2)² = 1.445
    value = row(1, 1, 0.3).requires_grad_()
    loss = ppo_value_loss(value, row(0, 0, 0), row(2, -1, 2), clip=0.5)
    torch.testing.assert_close(loss, row(1.125, 2.0, 1.445))
    loss.sum().backward()  # clipped: flat;  not clipped: V − target
    torch.testing.assert_close(value.grad, row(0, 2, -1.7))


def test_kl_estimate_is_the_stated_number_and_exact_near_one() -> None:
    # ρ = 2: 1 − log 2;   ρ = ½: −½ + log 2;   ρ = e^0.0001: x²/2 + x³/6 = 5.0002e-9, which float32 cannot see in ρ − 1
    estimate = kl_estimate(row(math.log(2), -math.log(2), 0.0))
    torch.testing.assert_close(estimate, row(1 - math.log(2), math.log(2) - 0.5, 0.0))
    tiny = kl_estimate(torch.tensor(1e-4))
    assert tiny.item() == pytest.approx(5.0002e-9, rel=5e-3)  # 1e-4 has a last bit of 7e-12


def test_kl_estimate_has_the_divergence_as_its_mean() -> None:
    old, new = row(0.2, 0.8), row(0.5, 0.5)
    mean = (old * kl_estimate((new / old).log())).sum()
    exact = (old * (old / new).log()).sum()  # KL(old ‖ new)
    torch.testing.assert_close(mean, exact)


def test_clip_fraction_marks_samples_outside_the_range() -> None:
    assert clip_fraction(RATIO.log(), 0.2).tolist() == [0, 1, 1, 1, 1, 0]
    assert clip_fraction(RATIO.log(), torch.tensor(0.05)).mean().item() == pytest.approx(5 / 6)


def test_normalise_gives_mean_zero_and_deviation_one_over_valid_rows() -> None:
    x, valid = row(1, 3, math.nan, 5, 7), torch.tensor([1, 1, 0, 1, 1])
    # mean 4, variance (9 + 1 + 1 + 9) / 4 = 5
    root = math.sqrt(5)
    torch.testing.assert_close(normalise(x, valid), row(-3 / root, -1 / root, 0, 1 / root, 3 / root))
    torch.testing.assert_close(normalise(row(1, 3)), row(-1, 1))


def test_normalise_of_equal_numbers_is_zero_and_not_amplified_rounding() -> None:
    for number in (0.1, 1e-3, 123.456):
        x = torch.full((1000,), number)
        assert normalise(x).abs().max() < 1e-3
        assert normalise(x, torch.ones(1000)).abs().max() < 1e-3
    assert normalise(row(5.0)).tolist() == [0.0]
    assert normalise(row(5.0, 6.0), torch.zeros(2)).tolist() == [0.0, 0.0]


def test_normalise_works_over_time_and_columns_and_keeps_its_input() -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    out = normalise(x, torch.ones(6, 3, dtype=torch.bool))
    assert out.shape == x.shape
    assert out.mean().abs() < 1e-6
    torch.testing.assert_close(out.std(correction=0), torch.tensor(1.0))
    assert torch.equal(x, before)


def test_explained_variance_is_one_for_truth_and_zero_for_a_constant() -> None:
    target = row(1, 2, 3, 4)
    assert explained_variance(target, target).item() == 1.0
    assert explained_variance(row(7, 7, 7, 7), target).item() == 0.0
    # errors −1, 1, −1, 1: variance 1; targets: variance 1.25;  1 − 1/1.25 = 0.2
    assert explained_variance(row(2, 1, 4, 3), target).item() == pytest.approx(0.2)


def test_explained_variance_skips_holes_and_is_zero_for_a_constant_target() -> None:
    valid = torch.tensor([1, 1, 1, 1, 0])
    assert explained_variance(row(2, 1, 4, 3, 99), row(1, 2, 3, 4, math.nan), valid).item() == pytest.approx(0.2)
    assert explained_variance(row(1, 2), row(3, 3)).item() == 0.0
