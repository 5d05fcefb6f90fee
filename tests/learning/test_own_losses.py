"""A loss that a user wrote may do anything with its network; the short way of a plain Q network must not be noticed."""

import numpy as np
import pytest
import torch

from learning.toys import Plain, learner
from rookery.algos.dqn import DQN, DQNConfig
from rookery.core.spec import Leaf
from rookery.nets import ModelConfig, QNetwork

BOX = Leaf("box", (3,), np.dtype(np.float32))
X = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))


def penalised(q, x):
    return q(x).square().mean() + 0.1 * sum(p.square().sum() for p in q.parameters())


def steep(q, x):
    """As flat as possible in its own parameters: a gradient of a gradient."""
    slope = torch.autograd.grad(q(x).sum(), list(q.parameters()), create_graph=True)
    return sum(g.square().sum() for g in slope)


def unused(q, x):
    found = torch.autograd.grad(q(x).sum(), list(q.parameters()), create_graph=True, materialize_grads=True)
    return sum(g.square().sum() for g in found) + sum(p.sum() for p in q.parameters())


def in_place(q, x):
    return q(x).mul_(2.0).square().mean()


def functional(q, x):
    return torch.func.functional_call(q, {k: 2.0 * p for k, p in q.named_parameters()}, (x,)).square().mean()


def several(q, x):
    with torch.no_grad():
        aim = q(x.flip(0))
    wide = torch.cat([x, x], 1)[:, ::2]  # every second column: not contiguous
    return (q(x) - aim).square().mean() + q(wide).sum() + q(x.expand(2, 8, 3)).mean() + q(x.double()).mean()


class Own(Plain):
    def __init__(self, loss):
        self.loss = loss

    def networks(self):
        return {"q": QNetwork(BOX, 4, ModelConfig(hidden=[16, 8]))}

    def update(self, s, b):
        s.minimise("q", lambda q: self.loss(q, b.x))


@pytest.mark.parametrize("loss", [penalised, steep, unused, in_place, functional, several])
def test_a_users_loss_gets_the_gradient_of_the_tape(loss):
    it, other = learner(Own(loss)), learner(Own(loss))
    assert it.nets["q"].chain is not None
    module = other.nets["q"].module
    loss(module, X).backward()
    wanted = other.nets["q"].grad.clone()
    it.step({"x": X})
    assert wanted.abs().sum() > 0
    torch.testing.assert_close(it.nets["q"].grad, wanted, rtol=1e-5, atol=1e-6)


def test_our_own_losses_take_the_short_way(monkeypatch):
    taken = []
    monkeypatch.setattr(
        "rookery.learning.short_path.Cut.finish", lambda cut, known: taken.append((len(cut._calls), known is None))
    )
    it = learner(DQN(DQNConfig(), BOX, Leaf("discrete", (), np.dtype(np.int64), (4,)), ModelConfig(hidden=[16])))
    rows = {"reward": torch.ones(8), "discount": torch.ones(8), "weight": torch.ones(8)}
    it.step({"obs": X, "next_obs": X, "action": torch.zeros(8, dtype=torch.int64), **rows})
    assert taken == [(1, False)]  # and its slope is known
