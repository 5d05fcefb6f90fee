"""Log-probabilities and entropies: by hand, by torch.distributions, and by brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, distributions

from rookery.core.spec import spec_of
from rookery.equations.distributions import (
    bernoulli_entropy,
    bernoulli_logp,
    categorical,
    categorical_entropy,
    categorical_logp,
    divergence,
    gaussian_entropy,
    gaussian_logp,
    joint_divergence,
    joint_logp_entropy,
    legal,
    logp_entropy,
    masked_logits,
    multi_categorical,
    multi_categorical_entropy,
    multi_categorical_logp,
    squashed_gaussian,
    squashed_gaussian_logp,
)

LOG_2PI = math.log(2 * math.pi)


def row(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_categorical_is_the_log_of_its_probabilities() -> None:
    # p = ¼, ¾ from logits 0, log 3;  H = ¼ log 4 + ¾ log(4/3)
    logits = row(0, math.log(3)).expand(2, 2)
    logp = categorical_logp(logits, torch.tensor([0, 1]))
    torch.testing.assert_close(logp, row(math.log(0.25), math.log(0.75)))
    entropy = 0.25 * math.log(4) + 0.75 * math.log(4 / 3)
    torch.testing.assert_close(categorical_entropy(logits), row(entropy, entropy))


def test_categorical_survives_huge_logits() -> None:
    logits = torch.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    logp, entropy = categorical(logits, torch.tensor([1]))
    assert logp.item() == -1e4
    assert entropy.item() == 0.0
    (logp.sum() + entropy.sum()).backward()
    assert torch.isfinite(logits.grad).all()  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float32])
def test_an_illegal_action_has_probability_zero(dtype: torch.dtype) -> None:
    logits, mask = row(5, 1, 1), torch.tensor([0, 1, 1]).to(dtype)
    p = torch.stack([categorical_logp(logits, torch.tensor(a), mask).exp() for a in range(3)])
    assert p.tolist() == [0.0, 0.5, 0.5]  # exactly 0, although its logit is the largest
    assert categorical_entropy(logits, mask).item() == pytest.approx(math.log(2))


def test_one_legal_action_is_certain() -> None:
    logp, entropy = categorical(row(5, 1, 1), torch.tensor(2), torch.tensor([0, 0, 1]))
    assert logp.item() == 0.0
    assert entropy.item() == 0.0


def test_masks_leave_no_nan_in_values_and_gradients_and_no_gradient_for_illegal_actions() -> None:
    logits = draw(5, 4).requires_grad_()
    mask = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]])
    action = torch.tensor([0, 1, 0, 2, 3])  # rows 2 and 4 chose an illegal action, row 3 has no legal one
    logp, entropy = categorical(logits, action, mask)
    assert torch.isfinite(logp).all()
    assert torch.isfinite(entropy).all()
    (logp.exp().sum() + entropy.sum()).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert not logits.grad[(mask == 0) & mask.any(-1, keepdim=True)].any()
    assert logits.grad[0].any()
    assert logits.grad[3].any()  # all forbidden counts as all legal


def test_a_row_without_legal_actions_is_distributed_as_if_unmasked() -> None:
    logits, none = draw(2, 3), torch.zeros(2, 3)
    action = torch.tensor([0, 2])
    assert torch.equal(categorical_logp(logits, action, none), categorical_logp(logits, action))
    assert torch.equal(categorical_entropy(logits, none), categorical_entropy(logits))
    assert legal(torch.tensor([[0, 0], [0, 1]])).tolist() == [[True, True], [False, True]]


def test_masking_stays_finite_in_half_precision() -> None:
    logits = masked_logits(torch.zeros(3, dtype=torch.float16), torch.tensor([1, 0, 1]))
    assert logits.dtype == torch.float16
    assert torch.isfinite(logits).all()
    assert logits.softmax(-1).tolist() == [0.5, 0.0, 0.5]


def test_categorical_agrees_with_torch() -> None:
    logits, action = draw(50, 6), torch.arange(50) % 6
    reference = distributions.Categorical(logits=logits)
    logp, entropy = categorical(logits, action)
    torch.testing.assert_close(logp, reference.log_prob(action))
    torch.testing.assert_close(entropy, reference.entropy())


def test_multi_discrete_sums_over_its_heads() -> None:
    # heads of 2 and 3: p = ¼, ¾ and ⅓, ⅓, ⅓;  action (1, 2): log ¾ + log ⅓ = log ¼
    logits = row(0, math.log(3), 7, 7, 7)[None]
    action = torch.tensor([[1, 2]])
    logp = multi_categorical_logp(logits, action, (2, 3))
    assert logp.item() == pytest.approx(math.log(0.25))
    entropy = 0.25 * math.log(4) + 0.75 * math.log(4 / 3) + math.log(3)
    assert multi_categorical_entropy(logits, (2, 3)).item() == pytest.approx(entropy)
    both = multi_categorical(logits, action, (2, 3))
    assert torch.equal(both[0], logp)
    assert both[1].item() == pytest.approx(entropy)


def test_multi_discrete_masks_each_head_with_its_own_part() -> None:
    # head 0: only action 0 is legal;  head 1: none is, so all are;  head 2: the first is forbidden
    logits = row(1, 9, 4, 4, 8, 0, 0)[None]
    mask = torch.tensor([[1, 0, 0, 0, 0, 1, 1]])
    action = torch.tensor([[0, 1, 2]])
    logp, entropy = multi_categorical(logits, action, (2, 2, 3), mask)
    assert logp.item() == pytest.approx(0 + math.log(0.5) + math.log(0.5))
    assert entropy.item() == pytest.approx(2 * math.log(2))
    illegal = multi_categorical_logp(logits, torch.tensor([[1, 1, 0]]), (2, 2, 3), mask)
    assert illegal.exp().item() == 0.0
    assert torch.isfinite(illegal).all()


def test_many_illegal_heads_at_once_stay_finite() -> None:
    logp = multi_categorical_logp(
        draw(1, 200), torch.zeros(1, 100, dtype=torch.int64), (2,) * 100, torch.tensor([[0, 1] * 100])
    )
    assert torch.isfinite(logp).all()
    assert logp.exp().item() == 0.0


def test_multi_discrete_refuses_another_number_of_heads() -> None:
    with pytest.raises(ValueError, match="longer"):
        multi_categorical_logp(draw(1, 5), torch.zeros(1, 3, dtype=torch.int64), (2, 3))


def test_bernoulli_sums_over_its_bits() -> None:
    # σ(log 3) = ¾: bits 1 and 0 of p = ¾ each: log ¾ + log ¼
    logits = row(math.log(3), math.log(3))
    assert bernoulli_logp(logits, torch.tensor([1, 0], dtype=torch.int8)).item() == pytest.approx(math.log(3 / 16))
    one = 0.25 * math.log(4) + 0.75 * math.log(4 / 3)
    assert bernoulli_entropy(logits).item() == pytest.approx(2 * one)
    logits, bits = draw(20, 5), (draw(20, 5, seed=1) > 0).float()
    reference = distributions.Bernoulli(logits=logits)
    torch.testing.assert_close(bernoulli_logp(logits, bits), reference.log_prob(bits).sum(-1))
    torch.testing.assert_close(bernoulli_entropy(logits), reference.entropy().sum(-1))


def test_bernoulli_survives_huge_logits() -> None:
    logits = row(1e4, -1e4, 1e4).requires_grad_()
    logp, entropy = bernoulli_logp(logits, row(1, 0, 0)), bernoulli_entropy(logits)
    assert logp.item() == -1e4
    assert entropy.item() == 0.0
    (logp + entropy).backward()
    assert torch.isfinite(logits.grad).all()  # type: ignore[arg-type]


def test_gaussian_is_the_density_of_its_parts() -> None:
    # σ = 2: z = (3 − 1)/2 = 1: −½ − log 2 − ½ log 2π;   σ = 1, z = 0: −½ log 2π
    logp = gaussian_logp(row(3, 5), row(1, 5), row(math.log(2), 0))
    assert logp.item() == pytest.approx(-0.5 - math.log(2) - LOG_2PI)
    assert gaussian_entropy(row(math.log(2), 0)).item() == pytest.approx(1 + LOG_2PI + math.log(2))
    action, mean, log_std = draw(30, 3), draw(30, 3, seed=1), draw(3, seed=2)
    reference = distributions.Normal(mean, log_std.exp())
    torch.testing.assert_close(gaussian_logp(action, mean, log_std), reference.log_prob(action).sum(-1))
    torch.testing.assert_close(gaussian_entropy(log_std.expand(30, 3)), reference.entropy().sum(-1))


def test_squashed_gaussian_at_zero_is_the_gaussian() -> None:
    # u = 0: the slope of tanh is 1, so log p(0) = log N(0; 0, 1) = −½ log 2π
    action, logp = squashed_gaussian(row(0), row(0), row(0))
    assert action.item() == 0.0
    assert logp.item() == pytest.approx(-0.5 * LOG_2PI)


def test_squashed_density_equals_a_brute_force_change_of_variables() -> None:
    """p(a) da = P(u in the interval that tanh maps onto da), from the normal distribution function, in float64."""
    mean, log_std = torch.tensor([[0.3], [-1.0], [0.0]]).double(), torch.tensor([[-0.5], [0.2], [0.7]]).double()
    eps = draw(3, 1).double()
    action, logp = squashed_gaussian(mean, log_std, eps)
    width = 1e-4 * (1 - action.abs())  # the density bends ever faster towards ±1
    edges = torch.atanh(torch.stack([action - width, action + width]))
    below, above = distributions.Normal(mean, log_std.exp()).cdf(edges)
    density = ((above - below) / (2 * width)).squeeze(-1)
    torch.testing.assert_close(logp.exp(), density, rtol=1e-6, atol=1e-8)


def test_squashed_density_integrates_to_one() -> None:
    action = torch.linspace(-1, 1, 200_001, dtype=torch.float64)[1:-1]
    u = torch.atanh(action)
    logp = squashed_gaussian_logp(u[:, None], torch.tensor([0.4]).double(), torch.tensor([-0.3]).double())
    assert torch.trapezoid(logp.exp(), action).item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("u", [-200.0, -20.0, -9.0, 9.0, 20.0, 200.0])
def test_squashed_gaussian_is_finite_and_right_where_tanh_is_one(u: float) -> None:
    mean = torch.tensor([u], requires_grad=True)
    log_std = torch.zeros(1, requires_grad=True)
    action, logp = squashed_gaussian(mean, log_std, torch.zeros(1))
    assert abs(action.item()) == pytest.approx(1.0)
    # 1 − tanh² u = 4 e^{−2|u|} (1 + e^{−2|u|})^{−2}, so log p = −½ log 2π − log 4 + 2|u| + 2 log(1 + e^{−2|u|})
    exact = -0.5 * LOG_2PI - math.log(4) + 2 * abs(u) + 2 * math.log1p(math.exp(-2 * abs(u)))
    assert logp.item() == pytest.approx(exact, rel=1e-6)
    logp.backward()
    assert mean.grad is not None
    assert mean.grad.item() == pytest.approx(2 * math.tanh(u))  # d/du of −log(1 − tanh² u)
    assert log_std.grad is not None
    assert torch.isfinite(log_std.grad).all()


def test_squashed_sample_and_its_density_agree_and_sum_over_the_parts() -> None:
    mean, log_std, eps = draw(10, 4), draw(10, 4, seed=1) * 0.3, draw(10, 4, seed=2)
    action, logp = squashed_gaussian(mean, log_std, eps)
    assert action.shape == (10, 4)
    assert logp.shape == (10,)
    torch.testing.assert_close(logp, squashed_gaussian_logp(mean + log_std.exp() * eps, mean, log_std))


def test_squashed_sample_passes_gradient_to_mean_and_deviation() -> None:
    # a = tanh(μ + σ ε), μ = 0, σ = 1, ε = ½: da/dμ = 1 − tanh²(½),  da/d log σ = σ ε (1 − tanh²(½))
    mean, log_std = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    squashed_gaussian(mean, log_std, row(0.5))[0].sum().backward()
    slope = 1 - math.tanh(0.5) ** 2
    assert mean.grad is not None
    assert log_std.grad is not None
    assert mean.grad.item() == pytest.approx(slope)
    assert log_std.grad.item() == pytest.approx(0.5 * slope)


def test_logp_entropy_serves_every_kind_of_action_in_the_shape_of_its_space() -> None:
    logits, mask = draw(4, 5), torch.tensor([[1, 1, 0, 1, 1]]).expand(4, 5)
    one, two = torch.tensor([0, 1, 3, 4]), torch.tensor([[0, 1], [1, 2], [1, 1], [0, 2]])
    bits = (draw(4, 2, 3, seed=3) > 0).to(torch.int8)  # MultiBinary((2, 3))
    box, mean, log_std = draw(4, 2, 3, seed=4), draw(4, 6, seed=5), draw(6, seed=6)
    wide = draw(4, 6, seed=7)
    cases = [
        (logp_entropy("discrete", (5,), {"logits": logits}, one, mask), categorical(logits, one, mask)),
        (
            logp_entropy("multi_discrete", (2, 3), {"logits": logits}, two, mask),
            multi_categorical(logits, two, (2, 3), mask),
        ),
        (
            logp_entropy("multi_binary", (2,) * 6, {"logits": wide}, bits),
            (bernoulli_logp(wide, bits.flatten(1)), bernoulli_entropy(wide)),
        ),
        (
            logp_entropy("box", (), {"mean": mean, "log_std": log_std}, box),
            (gaussian_logp(box.flatten(1), mean, log_std), gaussian_entropy(log_std.expand(4, 6))),
        ),
    ]
    for got, expected in cases:
        for x, y in zip(got, expected, strict=True):
            assert x.shape == (4,)
            assert torch.equal(x, y)


PARTS = spec_of(spaces.Dict({
    "aim": spaces.Tuple((spaces.Box(-9, 9, (1,), np.float32), spaces.MultiBinary(1))),
    "go": spaces.Discrete(2),
    "pair": spaces.MultiDiscrete([2, 2]),
}))  # fmt: skip


def parts(size: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Parameters and actions of `size` equal rows; logits log 3 and 0 are probabilities ¾ and ¼."""
    log3 = math.log(3.0)
    params = {
        "aim/0/mean": torch.zeros(size, 1),
        "aim/0/log_std": torch.zeros(size, 1),
        "aim/1/logits": torch.full((size, 1), log3),
        "go/logits": torch.tensor([log3, 0.0]).expand(size, 2),
        "pair/logits": torch.tensor([0.0, log3, 0.0, 0.0]).expand(size, 4),
    }
    aim = {"0": torch.ones(size, 1), "1": torch.ones(size, 1, dtype=torch.int8)}
    action = {"aim": aim, "go": torch.ones(size, dtype=torch.int64), "pair": torch.tensor([[1, 0]]).expand(size, 2)}
    return params, action


def test_the_parts_of_an_action_are_independent_so_log_probabilities_and_entropies_add_up_by_hand() -> None:
    params, action = parts(3)
    logp, entropy = joint_logp_entropy(PARTS, params, action)
    half_log = 0.5 * math.log(2 * math.pi)
    # 1 of N(0, 1): −½ − ½ log 2π;  the bit: ¾;  go = 1: ¼;  the pair: ¾ · ½
    assert logp.tolist() == pytest.approx([-0.5 - half_log + math.log(0.75 * 0.25 * 0.75 * 0.5)] * 3)
    coin = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert entropy.tolist() == pytest.approx([0.5 + half_log + 3 * coin + math.log(2.0)] * 3)


def test_the_mask_of_a_dict_of_actions_holds_those_of_its_choices_side_by_side() -> None:
    params, action = parts(1)
    mask = torch.tensor([[0, 1, 1, 1, 1, 0]])  # go: only 1;  pair: all, and only 0
    logp, entropy = joint_logp_entropy(PARTS, params, action, mask)
    half_log, coin = 0.5 * math.log(2 * math.pi), -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert logp.item() == pytest.approx(-0.5 - half_log + math.log(0.75 * 1.0 * 0.75 * 1.0))
    assert entropy.item() == pytest.approx(0.5 + half_log + 2 * coin)


def test_divergences_of_parts_add_up_and_one_leaf_is_a_space_of_its_own() -> None:
    old, _ = parts(2)
    new = {name: torch.zeros_like(x) for name, x in old.items()}
    new["aim/0/mean"] = torch.ones(2, 1)
    # Gaussian moved by 1: ½;  three coins from ¾ to ½: ¾ log 3/2 + ¼ log ½ each
    coin = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert joint_divergence(PARTS, old, new).tolist() == pytest.approx([0.5 + 3 * coin] * 2)
    leaf, logits, one = PARTS["go"], old["go/logits"], torch.tensor([0, 1])
    for x, y in zip(joint_logp_entropy(leaf, {"logits": logits}, one), categorical(logits, one), strict=True):
        assert torch.equal(x, y)
    assert torch.equal(
        joint_divergence(leaf, {"logits": logits}, {"logits": new["go/logits"]}),
        divergence("discrete", (2,), {"logits": logits}, {"logits": new["go/logits"]}),
    )
