"""TD errors, Q choices and losses: numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rookery.equations.value import (
    bootstrap_discount,
    double_q,
    double_td,
    greedy_action,
    huber,
    max_q,
    mean_valid,
    munchausen_bonus,
    n_step_td,
    pick,
    rescale,
    soft_value,
    squared,
    td_error,
    unscale,
    weighted_mean,
)


def row(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


Q = torch.tensor([[1.0, 5.0, 3.0], [2.0, 0.0, -1.0]])


def test_pick_takes_the_entry_of_the_last_dimension() -> None:
    assert pick(Q, torch.tensor([2, 0])).tolist() == [3.0, 2.0]
    assert pick(Q.expand(4, 2, 3), torch.ones(4, 2, dtype=torch.int64)).tolist() == [[5.0, 0.0]] * 4


def test_pick_gives_gradient_to_the_chosen_entry_only() -> None:
    table = Q.clone().requires_grad_()
    pick(table, torch.tensor([2, 0])).sum().backward()
    assert table.grad is not None
    assert table.grad.tolist() == [[0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float32])
def test_max_q_looks_at_legal_actions_only(dtype: torch.dtype) -> None:
    assert max_q(Q).tolist() == [5.0, 2.0]
    mask = torch.tensor([[1, 0, 1], [0, 0, 1]], dtype=dtype)
    assert max_q(Q, mask).tolist() == [3.0, -1.0]


def test_double_q_chooses_with_one_network_and_judges_with_the_other() -> None:
    target = torch.tensor([[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])
    assert double_q(Q, target).tolist() == [20.0, 40.0]  # argmax of Q: actions 1 and 0
    mask = torch.tensor([[1, 0, 1], [0, 1, 1]])
    assert double_q(Q, target, mask).tolist() == [30.0, 50.0]  # without those: actions 2 and 1


def test_a_row_without_legal_actions_counts_as_all_legal() -> None:
    mask = torch.tensor([[0, 0, 0], [0, 1, 0]])
    assert max_q(Q, mask).tolist() == [5.0, 0.0]
    assert double_q(Q, Q, mask).tolist() == [5.0, 0.0]


def test_the_bootstrap_discount_counts_the_steps_really_taken_and_ends_with_death_only() -> None:
    steps, terminated = torch.tensor([1, 3, 2, 3]), torch.tensor([False, False, False, True])
    assert bootstrap_discount(0.5, steps, terminated).tolist() == [0.5, 0.125, 0.25, 0.0]
    assert bootstrap_discount(0.0, steps, terminated).tolist() == [0.0, 0.0, 0.0, 0.0]


def test_td_error_uses_each_samples_own_discount() -> None:
    # 1 + ½·8 − 2 = 3;   1 + ⅛·8 − 2 = 0;   1 + 0·8 − 2 = −1
    td = td_error(row(2, 2, 2), row(1, 1, 1), row(0.5, 0.125, 0), row(8, 8, 8))
    assert td.tolist() == [3.0, 0.0, -1.0]


def test_n_step_td_equals_td_error_with_the_discount_of_its_steps() -> None:
    # k = 1, 3 and 3 steps, the last ends in death: the same three numbers
    steps, terminated = torch.tensor([1, 3, 3]), torch.tensor([0.0, 0.0, 1.0])
    td = n_step_td(row(2, 2, 2), row(1, 1, 1), row(8, 8, 8), terminated, steps, gamma=0.5)
    assert td.tolist() == [3.0, 0.0, -1.0]


def test_double_td_bootstraps_with_the_double_value() -> None:
    target = torch.tensor([[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])
    # 1 + ½·20 − 2 = 9;  1 + ½·40 − 2 = 19
    assert double_td(row(2, 2), row(1, 1), row(0.5, 0.5), Q, target).tolist() == [9.0, 19.0]
    # action 1 of row 0 forbidden: 1 + ½·30 − 2 = 14
    mask = torch.tensor([[1, 0, 1], [1, 1, 1]])
    assert double_td(row(2, 2), row(1, 1), row(0.5, 0.5), Q, target, mask).tolist() == [14.0, 19.0]


def test_a_td_error_differentiates_the_prediction_and_not_the_target() -> None:
    q_sa, reward, discount, ahead = (row(1, 2).requires_grad_() for _ in range(4))
    td_error(q_sa, reward, discount, ahead).sum().backward()
    assert q_sa.grad is not None
    assert q_sa.grad.tolist() == [-1.0, -1.0]
    assert reward.grad is None
    assert discount.grad is None
    assert ahead.grad is None


def test_huber_is_quadratic_inside_and_linear_outside() -> None:
    x = row(-3, -1, -0.5, 0, 0.5, 1, 3).requires_grad_()
    loss = huber(x)
    assert loss.tolist() == [2.5, 0.5, 0.125, 0.0, 0.125, 0.5, 2.5]  # 3 − ½;  ½·0.5²
    loss.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [-1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0]  # the error, clipped to ±1
    assert huber(row(3, 1), delta=2.0).tolist() == [4.0, 0.5]  # 2·(3 − 1);  ½·1²


def test_squared_has_the_error_as_its_gradient() -> None:
    x = row(-3, 2).requires_grad_()
    loss = squared(x)
    assert loss.tolist() == [4.5, 2.0]
    loss.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [-3.0, 2.0]


def test_weights_correct_each_sample_before_the_mean_and_are_not_normalised() -> None:
    assert weighted_mean(row(1, 2, 3), row(1, 0.5, 1)).item() == pytest.approx(5 / 3)  # (1 + 1 + 3) / 3
    valid = torch.tensor([True, True, False])
    assert weighted_mean(row(1, 2, 3), row(1, 0.5, 1), valid).item() == 1.0  # (1 + 1) / 2


@pytest.mark.parametrize("loss", [huber, squared])
def test_the_weight_reaches_either_loss(loss: object) -> None:
    x = row(3, 0.5).requires_grad_()
    weighted_mean(loss(x), row(0.5, 1)).backward()  # type: ignore[operator]
    assert x.grad is not None
    outside = 1.0 if loss is huber else 3.0
    assert x.grad.tolist() == [0.5 * outside / 2, 0.5 / 2]


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int8])
def test_holes_neither_count_nor_leak(dtype: torch.dtype) -> None:
    x = row(1, math.nan, 3, math.inf).requires_grad_()
    valid = torch.tensor([1, 0, 1, 0]).to(dtype)
    mean = mean_valid(x, valid)
    assert mean.item() == 2.0  # (1 + 3) / 2
    mean.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.5, 0.0, 0.5, 0.0]


def test_the_mean_of_nothing_is_zero() -> None:
    assert mean_valid(row(1, 2), torch.zeros(2)).item() == 0.0
    assert mean_valid(row(1, 2), None).item() == 1.5
    assert mean_valid(row(1, 2), row(0, 1)).item() == 2.0  # one row is its own mean


def test_rescaling_by_hand() -> None:
    # √(8 + 1) − 1 = 2, √(3 + 1) − 1 = 1; plus ε x
    assert rescale(row(8.0, -3.0, 0.0), 0.5).tolist() == [2.0 + 4.0, -1.0 - 1.5, 0.0]
    assert rescale(row(8.0, -3.0), 0.0).tolist() == [2.0, -1.0]
    assert unscale(row(6.0, -2.5, 0.0), 0.5).tolist() == pytest.approx([8.0, -3.0, 0.0])
    assert unscale(row(2.0, -1.0), 0.0).tolist() == [8.0, -3.0]


@pytest.mark.parametrize("eps", [1e-3, 1e-2, 0.0])
def test_unscale_is_the_exact_inverse_over_ten_orders_of_magnitude(eps: float) -> None:
    sizes = torch.logspace(-5, 5, 101)
    x = torch.cat([-sizes, torch.zeros(1), sizes])
    torch.testing.assert_close(unscale(rescale(x, eps), eps), x, rtol=2e-6, atol=0.0)
    torch.testing.assert_close(rescale(unscale(x / 100, eps), eps), x / 100, rtol=2e-6, atol=0.0)


def test_unscale_is_the_formula_of_the_paper() -> None:
    x, eps = torch.linspace(-50, 50, 101, dtype=torch.float64), 1e-3
    paper = x.sign() * (((torch.sqrt(1 + 4 * eps * (x.abs() + 1 + eps)) - 1) / (2 * eps)) ** 2 - 1)
    torch.testing.assert_close(unscale(x, eps), paper, rtol=1e-9, atol=1e-9)


def test_the_slope_of_rescaling_at_zero_is_finite() -> None:
    x = torch.zeros(1, requires_grad=True)
    rescale(x, 1e-3).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == pytest.approx(0.501)  # ½ + ε
    y = torch.zeros(1, requires_grad=True)
    unscale(y, 1e-3).sum().backward()
    assert y.grad is not None
    assert y.grad.item() == pytest.approx(1 / 0.501)


def test_the_greedy_action_is_legal() -> None:
    assert greedy_action(Q).tolist() == [1, 0]
    assert greedy_action(Q, torch.tensor([[1, 0, 1], [0, 0, 1]])).tolist() == [2, 2]


def test_the_soft_value_by_hand() -> None:
    # Q = (0, log 3), τ = 1: log(1 + 3); τ = ½: ½ log(1 + 9). π = (¼, ¾): ¼ · log 4 + ¾ (log 3 + log 4/3) = log 4
    q = row(0.0, math.log(3.0))
    assert soft_value(q, 1.0).item() == pytest.approx(math.log(4.0))
    assert soft_value(q, 0.5).item() == pytest.approx(0.5 * math.log(10.0))
    assert soft_value(q, 1.0, torch.tensor([1, 0])).item() == pytest.approx(0.0, abs=1e-7)  # one legal action: its Q
    assert soft_value(row(500.0, 499.0), 0.03).item() == pytest.approx(500.0)


def test_the_bonus_of_munchausen_by_hand() -> None:
    # π = softmax(Q / ½) = (1, 9) / 10: ½ log 0.1 = −1.151 is cut at −1, ½ log 0.9 is not
    q = row(0.0, math.log(3.0)).expand(2, 2)
    bonus = munchausen_bonus(q, torch.tensor([0, 1]), 0.5, -1.0)
    assert bonus.tolist() == pytest.approx([-1.0, 0.5 * math.log(0.9)])
    alone = munchausen_bonus(q[:1], torch.tensor([0]), 0.5, -1.0, torch.tensor([[1, 0]]))
    assert alone.tolist() == pytest.approx([0.0], abs=1e-7)  # without a choice nothing is surprising
