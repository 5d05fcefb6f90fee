"""Every loss is straight-line torch: traced by make_fx with its gradient, it gives the same numbers on *other* data.

Other data, because a number or a branch that the trace took from its example would go unnoticed on the example itself.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from rookery.core.spec import spec_of
from rookery.equations import distributional as q
from rookery.equations import distributions as d
from rookery.equations import policy as p
from rookery.equations import td as t
from rookery.equations import value as v

N, A, SIZES = 12, 5, (2, 3)
PARTS = spec_of(spaces.Dict({"a": spaces.MultiDiscrete(SIZES), "b": spaces.Box(-9, 9, (A,))}))


def batch(seed: int) -> dict[str, Tensor]:
    """Random numbers; the losses are differentiated by x."""
    g = torch.Generator().manual_seed(seed)
    tables = {name: torch.randn(N, A, generator=g) for name in ("x", "y")}
    rows = {name: torch.randn(N, generator=g) for name in ("a", "b", "c")}
    return (
        tables
        | rows
        | {
            "action": torch.randint(0, A, (N,), generator=g),
            "heads": torch.stack([torch.randint(0, n, (N,), generator=g) for n in SIZES], -1),
            "mask": (torch.rand(N, A, generator=g) < 0.5).to(torch.int8),  # some rows have no legal action
            "bit": (torch.rand(N, generator=g) < 0.5).float(),
            "knob": torch.rand((), generator=g) * 0.3,
        }
    )


FIELDS = tuple(batch(0))
Loss = Callable[[Any], Tensor]
LOSSES: dict[str, Loss] = {
    "pick": lambda b: v.pick(b.x, b.action),
    "max_q": lambda b: v.max_q(b.x, b.mask),
    "double_q": lambda b: v.double_q(b.y, b.x, b.mask),
    "td_error": lambda b: v.td_error(v.pick(b.x, b.action), b.a, b.bit, b.c),
    "td_loss": lambda b: t.td_loss(b.x, b.action, b.a, b.b)[0],
    "n_step_td": lambda b: v.n_step_td(v.pick(b.x, b.action), b.a, b.c, b.bit, b.action, 0.9),
    "double_td": lambda b: v.double_td(v.pick(b.x, b.action), b.a, b.bit, b.y, b.x, b.mask),
    "huber": lambda b: v.huber(b.x * 2, 0.7),
    "squared": lambda b: v.squared(b.x),
    "weighted_mean": lambda b: v.weighted_mean(v.huber(b.x[:, 0]), b.a, b.bit),
    "mean_valid": lambda b: v.mean_valid(b.x[:, 0], b.bit),
    "rescale": lambda b: v.rescale(b.x * 10) + v.unscale(b.x, 0.01),
    "project": lambda b: q.project(b.x.softmax(-1), b.a, b.bit, -2.0, 2.0) * b.y,
    "quantile_huber": lambda b: q.quantile_huber(b.x, b.y, q.midpoints(A, "cpu"), 0.5),
    "quantile_loss": lambda b: q.quantile_loss(b.x, b.y, q.midpoints(A, "cpu"), b.bit)[0],
    "quantile_results": lambda b: q.quantile_results({"loss": b.bit, "q": b.x.mean(-1)}, b.y)["td_abs"],
    "soft_value": lambda b: v.soft_value(b.x, 0.3, b.mask),
    "munchausen_bonus": lambda b: v.munchausen_bonus(b.x, b.action, 0.3, -1.0),
    "greedy_action": lambda b: v.pick(b.x, v.greedy_action(b.y, b.mask)),
    "kl_divergence": lambda b: q.kl_divergence(
        b.y.softmax(-1), q.pick_row(b.x.unsqueeze(-2), b.action * 0).log_softmax(-1)
    ),
    "moved": lambda b: q.moved(b.x, b.a, b.bit),
    "distort_a": lambda b: q.distort(b.x.sigmoid(), "cpw", 0.7) + q.distort(b.x.sigmoid(), "cvar", 0.3),
    "distort_b": lambda b: q.distort(b.x.sigmoid(), "wang", -0.5) + q.distort(b.x.sigmoid(), "pow", -2.0),
    "fraction_gradient": lambda b: q.fraction_gradient(b.x[:, 1:], b.x),
    "ppo_policy_loss": lambda b: p.ppo_policy_loss(b.x[:, 0], b.a, b.knob),
    "ppo_dual_clip": lambda b: p.ppo_policy_loss(b.x[:, 0] * 3, b.a, 0.2, 3.0),
    "ppo_value_loss": lambda b: p.ppo_value_loss(b.x[:, 0], b.b, b.c),
    "ppo_value_clip": lambda b: p.ppo_value_loss(b.x[:, 0], b.b, b.c, b.knob),
    "kl_estimate": lambda b: p.kl_estimate(b.x),
    "clip_fraction": lambda b: b.x[:, 0] + p.clip_fraction(b.x[:, 0], b.knob),
    "normalise": lambda b: p.normalise(b.x[:, 0], b.bit) * b.a,
    "explained_variance": lambda b: p.explained_variance(b.x[:, 0], b.a, b.bit),
    "categorical": lambda b: sum(d.categorical(b.x, b.action, b.mask)),
    "categorical_logp": lambda b: d.categorical_logp(b.x, b.action),
    "categorical_entropy": lambda b: d.categorical_entropy(b.x),
    "multi_categorical": lambda b: sum(d.multi_categorical(b.x, b.heads, SIZES, b.mask)),
    "multi_categorical_logp": lambda b: d.multi_categorical_logp(b.x, b.heads, SIZES),
    "multi_categorical_entropy": lambda b: d.multi_categorical_entropy(b.x, SIZES, b.mask),
    "bernoulli": lambda b: d.bernoulli_logp(b.x, b.mask) + d.bernoulli_entropy(b.x),
    "gaussian": lambda b: d.gaussian_logp(b.y, b.x, b.a[:A]) + d.gaussian_entropy(b.x),
    "squashed_gaussian": lambda b: sum(part.sum() for part in d.squashed_gaussian(b.x, b.y * 0.3, b.x.detach() + 1)),
    "squashed_gaussian_logp": lambda b: d.squashed_gaussian_logp(b.x, b.y, b.a[:A] * 0.3),
    "divergence": lambda b: d.divergence("multi_discrete", SIZES, {"logits": b.y}, {"logits": b.x}, b.mask),
    "bernoulli_divergence": lambda b: d.bernoulli_divergence(b.y, b.x),
    "gaussian_divergence": lambda b: d.gaussian_divergence(b.y, b.x, b.x * 2, b.y),
    "joint_divergence": lambda b: d.joint_divergence(
        PARTS,
        {"a/logits": b.y, "b/mean": b.y, "b/log_std": b.x},
        {"a/logits": b.x, "b/mean": b.x, "b/log_std": b.y},
        b.mask,
    ),
    "joint_logp_entropy": lambda b: sum(
        d.joint_logp_entropy(
            PARTS, {"a/logits": b.x, "b/mean": b.x, "b/log_std": b.y}, {"a": b.heads, "b": b.y * 2}, b.mask
        )
    ),
    "logp_entropy": lambda b: sum(d.logp_entropy("multi_discrete", SIZES, {"logits": b.x}, b.heads, b.mask)),
}


def with_gradient(loss: Loss) -> Callable[..., tuple[Tensor, ...]]:
    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        data = SimpleNamespace(**dict(zip(FIELDS, tensors, strict=True)))
        data.x = data.x.detach().requires_grad_()
        out = loss(data)
        (gradient,) = torch.autograd.grad(out.sum(), [data.x])
        return out.detach(), gradient

    return run


@pytest.mark.parametrize("name", LOSSES)
def test_the_traced_loss_and_its_gradient_equal_the_eager_ones_on_other_data(name: str) -> None:
    run = with_gradient(LOSSES[name])
    graph = make_fx(run)(*batch(0).values())
    for seed in (1, 2, 3):
        tensors = list(batch(seed).values())
        before = [tensor.clone() for tensor in tensors]
        eager, traced = run(*tensors), graph(*tensors)
        for x, y in zip(eager, traced, strict=True):
            assert torch.isfinite(x).all()
            torch.testing.assert_close(x, y)
        assert eager[1].any(), "no gradient at all"
        assert all(torch.equal(x, y) for x, y in zip(tensors, before, strict=True)), "an input was changed"


@pytest.mark.parametrize("name", LOSSES)
def test_the_trace_draws_no_random_number_and_captures_no_tensor(name: str) -> None:
    graph = make_fx(with_gradient(LOSSES[name]))(*batch(0).values())
    called = {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}
    assert not [target for target in called if "rand" in target or "bernoulli" in target or "_local_scalar" in target]
    assert not [node for node in graph.graph.nodes if node.op == "get_attr"]


def test_every_public_equation_is_traced() -> None:
    """A new function without its line in LOSSES fails here."""
    public = {
        name
        for module in (d, p, v, q)
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    }
    used = {name for loss in LOSSES.values() for name in loss.__code__.co_names}
    inside = {"legal", "masked_logits", "bootstrap_discount", "atoms"}  # called by those above
    assert public - used - inside == set()
