"""A2C, REINFORCE, TRPO and PPG: losses worked out by hand, and what each does with ends and holes."""

import math

import pytest
import torch

from algos.test_updates import BOX, OBS, SMALL, TWO, learner, rollout
from rookery.algos.a2c import A2C, A2CConfig
from rookery.learning.build import trace
from rookery.learning.optim import Adam, RMSprop


def blank(algo):
    """All networks zero: π = ½ each, V = 0."""
    it = learner(algo)
    for net in it.nets.values():
        net.value.zero_()
    return it


def column(rewards, terminated=(), truncated=()):
    """One env, all observations zero but the final ones."""
    n = len(rewards)
    flags = {name: torch.zeros(n, 1, dtype=torch.bool) for name in ("terminated", "truncated", "first")}
    for name, rows in (("terminated", terminated), ("truncated", truncated)):
        flags[name][list(rows)] = True
    ends = sorted([*terminated, *truncated])
    return flags | {
        "obs": torch.zeros(n, 1, 3), "action": torch.zeros(n, 1, dtype=torch.int64), "reward": torch.tensor(rewards).unsqueeze(1),
        "logp": torch.full((n, 1), -math.log(2)), "valid": torch.ones(n, 1, dtype=torch.bool), "last_obs": torch.zeros(1, 3),
        "final_obs": torch.ones(len(ends), 3), "final_at": torch.tensor([[t, 0] for t in ends]).reshape(-1, 2).long(),
    }  # fmt: skip


def test_the_losses_of_a2c_by_hand():
    # V = 0, γ = ½, the second row terminates: R = 1 + ½ · 2 = 2, then 2; A = R; log π = −log 2
    # L_π = 2 log 2,  L_V = ½ · 4,  H = log 2;  L = L_π + ½ L_V − 0.01 H
    it = blank(A2C(A2CConfig(gamma=0.5), OBS, TWO, SMALL))
    out = it.step(it.prepare(column([1.0, 2.0], terminated=[1])))[0].metrics
    assert out["policy_loss"] == pytest.approx(2 * math.log(2))
    assert out["value_loss"] == pytest.approx(2.0)
    assert out["entropy"] == pytest.approx(math.log(2))
    assert out["ac/loss"] == pytest.approx(1.99 * math.log(2) + 1.0)


def test_a2c_sums_rewards_to_the_cut_and_bootstraps_there():
    it = blank(A2C(A2CConfig(gamma=0.5), OBS, TWO, SMALL))
    with torch.no_grad():
        it.nets["ac"].module.value_head.bias.fill_(8.0)
    # no end: R = 1 + ½ (2 + ½ 8) = 4, and 2 + 4 = 6; a time limit after row 0: R = 1 + ½ V(final) = 5
    assert it.prepare(column([1.0, 2.0]))["target"].tolist() == pytest.approx([4.0, 6.0])
    assert it.prepare(column([1.0, 2.0], truncated=[0]))["target"].tolist() == pytest.approx([5.0, 6.0])
    assert it.prepare(column([1.0, 2.0], terminated=[0]))["target"].tolist() == pytest.approx([1.0, 6.0])


def test_a2c_learns_with_the_optimiser_it_is_told():
    assert isinstance(A2C(A2CConfig(), OBS, TWO, SMALL).optimisers()["ac"], RMSprop)
    assert isinstance(A2C(A2CConfig(optimiser="adam"), OBS, TWO, SMALL).optimisers()["ac"], Adam)


CASES = {
    "a2c": (lambda: A2C(A2CConfig(), OBS, TWO, SMALL), lambda i: rollout(i, TWO)),
    "a2c-box-rnd": (lambda: A2C(A2CConfig(optimiser="adam", curiosity={"kind": "rnd"}), OBS, BOX, SMALL), lambda i: rollout(i, BOX)),
    "a2c-icm": (lambda: A2C(A2CConfig(optimiser="adam", curiosity={"kind": "icm"}), OBS, TWO, SMALL), lambda i: rollout(i, TWO)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_update_can_be_traced(name):
    algo = CASES[name][0]()
    it = learner(algo)
    graph, _, _ = trace(it, "update", it.prepare(CASES[name][1](0)))
    assert len(list(graph.graph.nodes)) > 10
