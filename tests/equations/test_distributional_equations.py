"""Distributions of the return: numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rookery.equations.distributional import (
    Risk,
    atoms,
    distort,
    fraction_gradient,
    kl_divergence,
    midpoints,
    moved,
    pick_row,
    project,
    quantile_huber,
    quantile_loss,
    quantile_results,
)
from rookery.equations.value import weighted_mean


def row(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


P = torch.tensor([[0.2, 0.5, 0.3]])  # on the atoms −1, 0, 1


@pytest.mark.parametrize(
    ("reward", "discount", "wanted"),
    [
        (0.0, 1.0, [0.2, 0.5, 0.3]),  # nothing moves: every atom falls on itself
        (1.0, 1.0, [0.0, 0.2, 0.8]),  # moved by one atom, what leaves the support goes to its end
        (0.5, 1.0, [0.1, 0.1 + 0.25, 0.25 + 0.3]),  # halfway: −0.5, 0.5 and 1.5 → 1
        (0.25, 0.5, [0.2 * 0.25, 0.2 * 0.75 + 0.5 * 0.75 + 0.3 * 0.25, 0.5 * 0.25 + 0.3 * 0.75]),  # −¼, ¼, ¾
        (0.75, 0.0, [0.0, 0.25, 0.75]),  # terminated: all mass at the reward
        (-9.0, 0.9, [1.0, 0.0, 0.0]),
        (9.0, 0.9, [0.0, 0.0, 1.0]),
    ],
)
def test_mass_is_shared_between_the_neighbours_by_distance(reward: float, discount: float, wanted: list[float]) -> None:
    (found,) = project(P, row(reward), row(discount), -1.0, 1.0).tolist()
    assert found == pytest.approx(wanted, abs=1e-6)


def test_every_sample_has_its_own_reward_and_discount() -> None:
    both = project(P.expand(2, 3), row(1.0, 0.75), row(1.0, 0.0), -1.0, 1.0)
    assert both.tolist()[0] == pytest.approx([0.0, 0.2, 0.8])
    assert both.tolist()[1] == pytest.approx([0.0, 0.25, 0.75])


def test_mass_and_inside_the_support_also_the_mean_are_kept() -> None:
    g = torch.Generator().manual_seed(0)
    p = torch.rand(4, 5, 51, generator=g).softmax(-1)
    reward, discount = torch.rand(4, 5, generator=g) - 0.5, torch.rand(4, 5, generator=g) * 0.9
    moved, z = project(p, reward, discount, -10.0, 10.0), atoms(-10.0, 10.0, 51, "cpu")
    torch.testing.assert_close(moved.sum(-1), torch.ones(4, 5))
    torch.testing.assert_close((moved * z).sum(-1), reward + discount * (p * z).sum(-1), rtol=1e-4, atol=1e-5)


def test_the_atoms_reach_from_end_to_end() -> None:
    assert atoms(-1.0, 1.0, 5, "cpu").tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]


def test_midpoints_share_the_probability_equally() -> None:
    assert midpoints(4, "cpu").tolist() == [0.125, 0.375, 0.625, 0.875]


def test_the_quantile_loss_by_hand() -> None:
    # τ = ¼, ¾; u = y − θ: for θ = 0: 0.5 and −3; for θ = 1: −0.5 and −4
    # huber: 0.125, 2.5; 0.125, 3.5; slopes |τ − 1{u<0}|: ¼, ¾; ¼, ¼
    # rows: (0.03125 + 1.875) / 2 = 0.953125;  (0.03125 + 0.875) / 2 = 0.453125
    loss = quantile_huber(row(0.0, 1.0)[None], row(0.5, -3.0)[None], row(0.25, 0.75))
    assert loss.tolist() == pytest.approx([0.953125 + 0.453125])


def test_kappa_is_where_the_loss_becomes_linear_and_divides_it() -> None:
    # u = 3, κ = 2: 2 · (3 − 1) / 2 = 2, slope ½
    assert quantile_huber(row(0.0)[None], row(3.0)[None], row(0.5), kappa=2.0).tolist() == [1.0]


def test_a_small_kappa_leaves_the_plain_quantile_loss() -> None:
    # |τ − 1{u<0}| |u|: ¼ · 3 for u = 3, ¾ · 2 for u = −2
    loss = quantile_huber(row(0.0)[None], row(3.0, -2.0)[None], row(0.25), kappa=1e-6)
    assert loss.tolist() == pytest.approx([(0.75 + 1.5) / 2], rel=1e-5)


def test_the_minimum_is_the_quantile() -> None:
    target = torch.arange(100.0)[None]
    at = [quantile_huber(row(x)[None], target, row(0.9), kappa=1e-3).item() for x in (80.0, 89.5, 99.0)]
    assert at[1] < min(at[0], at[2])


def test_the_weight_of_a_sample_reaches_its_loss() -> None:
    loss = quantile_huber(torch.zeros(2, 1), torch.tensor([[1.0], [1.0]]), row(0.5))
    assert loss.tolist() == [0.25, 0.25]
    assert weighted_mean(loss, row(1.0, 3.0)).item() == 0.5


def test_each_sample_may_have_its_own_tau_and_targets_get_no_gradient() -> None:
    theta, target = torch.zeros(2, 1, requires_grad=True), torch.full((2, 3), -0.5, requires_grad=True)
    quantile_huber(theta, target, torch.tensor([[0.25], [1.0]])).sum().backward()
    assert theta.grad is not None
    assert theta.grad.tolist() == [[0.375], [0.0]]  # −slope · u = ¾ · ½ and 0 · ½
    assert target.grad is None


def test_gradients_are_finite_where_an_error_is_exactly_zero() -> None:
    theta = torch.zeros(1, 2, requires_grad=True)
    quantile_huber(theta, torch.zeros(1, 2), midpoints(2, "cpu")).sum().backward()
    assert theta.grad is not None
    assert theta.grad.tolist() == [[0.0, 0.0]]


def test_all_numbers_of_an_action_are_picked() -> None:
    table = torch.arange(12.0).reshape(2, 3, 2)  # two samples, three actions, two numbers each
    assert pick_row(table, torch.tensor([2, 0])).tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert pick_row(table[None], torch.tensor([[2, 0]])).tolist() == [[[4.0, 5.0], [6.0, 7.0]]]


def test_the_divergence_by_hand() -> None:
    # m = (½, ½, 0), p = (¼, ¼, ½): ½ log 2 + ½ log 2 + 0 = log 2; m = p: 0
    m = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]])
    log_p = row(0.25, 0.25, 0.5).log().expand(2, 3)
    assert kl_divergence(m, log_p).tolist() == pytest.approx([math.log(2.0), 0.0], abs=1e-7)


def test_the_gradient_of_the_divergence_is_that_of_the_cross_entropy() -> None:
    # softmax of zeros is ⅓ each: p − m = (⅓ − 1, ⅓, ⅓)
    logits = torch.zeros(1, 3, requires_grad=True)
    kl_divergence(row(1.0, 0.0, 0.0)[None], logits.log_softmax(-1)).sum().backward()
    assert logits.grad is not None
    assert logits.grad.tolist()[0] == pytest.approx([-2 / 3, 1 / 3, 1 / 3])


def test_moved_quantiles() -> None:
    assert moved(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), row(1.0, 5.0), row(0.5, 0.0)).tolist() == [
        [1.5, 2.0],
        [5.0, 5.0],
    ]


@pytest.mark.parametrize(
    ("risk", "eta", "wanted"),
    [
        ("neutral", 0.0, [0.25, 0.5]),
        ("cvar", 0.2, [0.05, 0.1]),  # only the worst fifth is seen
        ("pow", -2.0, [1 - 0.75 ** (1 / 3), 1 - 0.5 ** (1 / 3)]),
        ("pow", 1.0, [0.5, math.sqrt(0.5)]),  # ¼ and ½ to the power ½
        ("cpw", 0.5, [0.5 / (0.5 + math.sqrt(0.75)) ** 2, math.sqrt(0.5) / (2 * math.sqrt(0.5)) ** 2]),
        (
            "wang",
            -0.75,
            [0.07715, 0.2266],
        ),  # Φ(−0.6745 − 0.75), between Φ(−1.42) = 0.0778 and Φ(−1.43) = 0.0764; Φ(−0.75)
    ],
)
def test_distorted_fractions_by_hand(risk: Risk, eta: float, wanted: list[float]) -> None:
    assert distort(row(0.25, 0.5), risk, eta).tolist() == pytest.approx(wanted, abs=1e-4)


def test_the_gradient_of_a_fraction_by_hand() -> None:
    # θ(τ) = τ, τ = 0, 0.2, 1: midpoints 0.1 and 0.6, so 2 · 0.2 − 0.6 − 0.1 = −0.3: the fraction must grow, to ½
    assert fraction_gradient(row(0.2), row(0.1, 0.6)).tolist() == pytest.approx([-0.3])
    assert fraction_gradient(row(0.5), row(0.25, 0.75)).tolist() == [0.0]


def test_the_gradient_of_a_fraction_is_the_derivative_of_the_distance() -> None:
    """W₁ between θ(τ) = τ² and its two steps at τ̂ by a fine sum, differentiated numerically at τ₁ = 0.3."""
    grid = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000

    def distance(t: float) -> float:
        return (grid.square() - torch.where(grid < t, (t / 2) ** 2, ((1 + t) / 2) ** 2)).abs().mean().item()

    slope = (distance(0.301) - distance(0.299)) / 0.002
    assert fraction_gradient(row(0.3**2), row(0.15**2, 0.65**2)).item() == pytest.approx(slope, abs=1e-3)


def test_the_quantile_loss_and_its_results_by_hand() -> None:
    """θ = 0, 2 at τ = ¼, ¾, one target 1: u = 1, −1, huber ½ each; ¼ · ½ + |¾ − 1| · ½ = ¼. Of
    two samples, weights 1 and 3."""
    theta, target = torch.tensor([[0.0, 2.0], [1.0, 1.0]]), torch.tensor([[1.0], [1.0]])
    loss, out = quantile_loss(theta, target, torch.tensor([0.25, 0.75]), torch.tensor([1.0, 3.0]))
    assert out["loss"].tolist() == [0.25, 0.0]
    assert out["q"].tolist() == [1.0, 1.0]
    assert loss.item() == 0.125
    found = quantile_results({"loss": out["loss"], "q": torch.tensor([1.5, 0.0])}, target)
    assert {key: value.tolist() for key, value in found.items()} == {
        "priority": [0.25, 0.0],
        "q_mean": 0.75,
        "target_mean": 1.0,
        "td_abs": 0.75,
    }
