"""KL(old ‖ new) of action distributions: by hand, and by torch.distributions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, distributions

from rookery.equations.distributions import bernoulli_divergence, divergence, gaussian_divergence


def row(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_divergence_of_two_coins_by_hand() -> None:
    # old ¾, ¼; new ½, ½:  ¾ log 1.5 + ¼ log 0.5; a coin is also one bit, and two of them two heads
    old, new = row(math.log(3), 0), row(0, 0)
    wanted = pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), abs=1e-6)  # differences of float32 near 1
    assert divergence("discrete", (2,), {"logits": old}, {"logits": new}).item() == wanted
    assert bernoulli_divergence(old[:1], new[:1]).item() == wanted
    assert divergence("multi_binary", (2,), {"logits": old[:1]}, {"logits": new[:1]}).item() == wanted
    both = divergence("multi_discrete", (2, 2), {"logits": old.repeat(2)}, {"logits": new.repeat(2)})
    assert both.item() / 2 == wanted


def test_the_divergence_of_gaussians_by_hand() -> None:
    # μ 0 → 1, σ 1 → 2:  log 2 + (1 + 1) / 8 − ½;  μ 3 → 3, σ 2 → 1:  −log 2 + 4 / 2 − ½
    old, new = (row(0, 3), row(0, math.log(2))), (row(1, 3), row(math.log(2), 0))
    wanted = (math.log(2) + 0.25 - 0.5) + (-math.log(2) + 2.0 - 0.5)
    assert gaussian_divergence(*old, *new).item() == pytest.approx(wanted, rel=1e-5)


def test_divergences_equal_those_of_torch() -> None:
    a, b = draw(7, 5), draw(7, 5, seed=1)
    kl = distributions.kl_divergence
    wanted = kl(distributions.Categorical(logits=a), distributions.Categorical(logits=b))
    torch.testing.assert_close(divergence("discrete", (5,), {"logits": a}, {"logits": b}), wanted)
    coins = kl(distributions.Bernoulli(logits=a), distributions.Bernoulli(logits=b)).sum(-1)
    torch.testing.assert_close(divergence("multi_binary", (2,) * 5, {"logits": a}, {"logits": b}), coins)
    bells = kl(distributions.Normal(a, b.exp()), distributions.Normal(b, a.exp())).sum(-1)
    found = divergence("box", (), {"mean": a, "log_std": b}, {"mean": b, "log_std": a})
    torch.testing.assert_close(found, bells)


def test_an_illegal_action_is_no_part_of_the_divergence_and_gets_no_gradient() -> None:
    old, new = row(0.5, 100.0, 0.0), row(0.0, -50.0, 0.0).requires_grad_()
    mask = torch.tensor([1, 0, 1])
    masked = divergence("discrete", (3,), {"logits": old}, {"logits": new}, mask)
    without = divergence("discrete", (2,), {"logits": old[[0, 2]]}, {"logits": new[[0, 2]]})
    torch.testing.assert_close(masked, without)
    masked.backward()
    assert new.grad is not None
    assert new.grad[1] == 0


def test_the_divergence_from_itself_is_zero_and_so_is_its_gradient() -> None:
    logits = draw(4, 3).requires_grad_()
    same = divergence("discrete", (3,), {"logits": logits.detach()}, {"logits": logits}).sum()
    same.backward()
    assert same.item() == pytest.approx(0.0, abs=1e-6)
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-6
