"""COMA: advantages and targets worked out by hand, members that are not there, masks, own sizes, memory."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from algos.team_batches import CHOICES, VECTORS, seen_by, team_rollout
from algos.test_updates import learner
from rookery.algos.coma import COMA, COMAConfig, counterfactual
from rookery.algos.teams import of_others, side_by_side
from rookery.core.errors import ConfigError
from rookery.core.spec import spec_of
from rookery.learning.compiled.build import trace
from rookery.nets import ModelConfig
from rookery.nets.encoders import OneHot
from rookery.run.config.resolve import load_config

SMALL = ModelConfig(hidden=(8,))
GRU = ModelConfig(hidden=(8,), core={"kind": "gru", "size": 6})
PAIR = spec_of(spaces.Dict({"agents": spaces.Box(-1, 1, (2, 1), np.float32), "present": spaces.MultiBinary(2)}))
TWICE = spec_of(spaces.MultiDiscrete([2, 2]))


def made(config=None, spec=None, model=SMALL):
    return COMA(config or COMAConfig(), spec or seen_by(mask=True), CHOICES, model)


CASES = {
    "coma": (made, lambda i: team_rollout(i, seen_by(mask=True), CHOICES)),
    "coma-own": (
        lambda: made(COMAConfig(shared=False, target_every=3), seen_by(False)),
        lambda i: team_rollout(i, seen_by(False), CHOICES),
    ),
    "coma-gru": (
        lambda: made(COMAConfig(optimiser="adam"), model=GRU),
        lambda i: team_rollout(i, seen_by(mask=True), CHOICES, memory=made(model=GRU).memory()),
    ),
}


def test_the_advantage_by_hand():
    # Σ π Q = .2 · 1 + .8 · 2 = 1.8:  A(1) = 2 − 1.8,  A(0) = 1 − 1.8
    q, policy = torch.tensor([1.0, 2.0]), torch.tensor([0.2, 0.8])
    assert counterfactual(q, policy, torch.tensor(1)).item() == pytest.approx(0.2)
    assert counterfactual(q, policy, torch.tensor(0)).item() == pytest.approx(-0.8)


def test_each_member_is_told_what_the_others_do():
    told = of_others(OneHot(2)(torch.tensor([1, 0])))
    assert told.tolist() == [[[0, 0], [1, 0]], [[0, 1], [0, 0]]]
    assert side_by_side(torch.arange(6.0).reshape(2, 3), (3, 2)).tolist() == [0, 1, 2, 3, 4]


def pair(rewards, present=(1, 1), **flags):
    """One env, two members with two choices, nothing to see; both take action 0."""
    n = len(rewards)

    def obs(*lead):
        return {
            "agents": torch.zeros(*lead, 2, 1),
            "present": torch.tensor(present, dtype=torch.int8).expand(*lead, 2),
        }

    marks = {name: torch.zeros(n, 1, dtype=torch.bool) for name in ("terminated", "truncated", "first")}
    ends = [(t, 0) for name in flags for t in flags[name]]
    for name, rows in flags.items():
        marks[name][list(rows)] = True
    return marks | {
        "obs": obs(n, 1), "action": torch.zeros(n, 1, 2, dtype=torch.int64),
        "reward": torch.tensor(rewards).reshape(n, 1),
        "valid": torch.ones(n, 1, dtype=torch.bool), "last_obs": obs(1), "final_obs": obs(len(ends)),
        "final_at": torch.tensor(ends).reshape(-1, 2).long(),
    }  # fmt: skip


def constant(algo, q):
    """Every network zero but the critics' last bias: Q_i(·, a) = q[a]; π = ½ each."""
    it = learner(algo)
    for name, net in it.nets.items():
        net.value.zero_()
        if name.startswith("critic"):
            net.value[-2:] = torch.tensor(q)
    return it


def test_the_target_by_hand():
    # Q' of the actions taken is 8, of the policy ½ 8 + ½ 4 = 6; γ = ½, λ = ½
    # cut after row 1: y_1 = 2 + ½ 6 = 5;  y_0 = 1 + ½ (½ 8 + ½ y_1) = 1 + ½ 6.5 = 4.25
    it = constant(COMA(COMAConfig(gamma=0.5, lam=0.5), PAIR, TWICE, SMALL), [8.0, 4.0])
    assert it.prepare(pair([1.0, 2.0]))["target"].tolist() == pytest.approx([4.25, 5.0])
    assert it.prepare(pair([1.0, 2.0], truncated=[1]))["target"].tolist() == pytest.approx([4.25, 5.0])
    # a terminated row bootstraps nothing, and nothing passes over a time limit: y_0 = 1, or 1 + ½ 6
    assert it.prepare(pair([1.0, 2.0], terminated=[0]))["target"].tolist() == pytest.approx([1.0, 5.0])
    assert it.prepare(pair([1.0, 2.0], truncated=[0]))["target"].tolist() == pytest.approx([4.0, 5.0])


def test_the_losses_by_hand():
    # terminated after one row: y = 1, Q(a) = 3: L_Q = ½ 4; then A = Q(0) − mean Q = ½ (3 − 2) (the critic has
    # hardly moved with lr 0), log π = −log 2, H = log 2: L_π = ½ log 2 − .01 log 2
    config = COMAConfig(critic_lr=0.0, entropy_bonus=0.01)
    for present in (1, 1), (1, 0):  # an absent member changes no mean
        it = constant(COMA(config, PAIR, TWICE, SMALL), [3.0, 2.0])
        out = it.step(it.prepare(pair([1.0], present, terminated=[0])))[0].metrics
        assert out["critic/loss"] == pytest.approx(2.0)
        assert out["advantage_abs"] == pytest.approx(0.5)
        assert out["policy/loss"] == pytest.approx(0.49 * math.log(2))
        assert (out["q_mean"], out["target_mean"], out["td_abs"]) == pytest.approx((3.0, 1.0, 2.0))


def test_the_value_of_a_row_is_that_of_the_members_who_are_present():
    """Own critics say 8 and 2: with both present the bootstrap is 5, without the second it is 8."""
    for present, following in ((1, 1), 5.0), ((1, 0), 8.0), ((0, 0), 0.0):
        it = learner(COMA(COMAConfig(gamma=0.5, shared=False), PAIR, TWICE, SMALL))
        target = it.nets["critic_target"]
        target.value.zero_()
        for net, q in zip(target.frozen.members.networks, (8.0, 2.0)):
            net.head.bias.detach().fill_(q)
        assert it.prepare(pair([0.0], present))["target"].tolist() == pytest.approx([0.5 * following])


@pytest.mark.parametrize("name", CASES)
def test_illegal_choices_have_no_chance_and_own_sizes_are_kept(name):
    make, batch_of = CASES[name]
    it, batch = learner(make()), batch_of(0)
    algo, obs = it.algo, batch["last_obs"]
    state = None if algo.memory() is None else {"h": batch["state"]["h"][0]}
    with torch.no_grad():
        out, after = algo.outputs(it.eager, obs, state, None)
        value = algo.expected_return(it.eager, obs, state)
    assert out["logits"].shape == (4, 9)
    assert value.shape == (4,)
    assert state is None or after["h"].shape == (4, 3, 6)
    mask = obs.get("action_mask")
    mask = None if mask is None else mask.numpy()
    rule, rng = algo.rule(), np.random.default_rng(0)
    for _ in range(20):
        action = rule({"logits": out["logits"].numpy()}, rng, {}, mask, False)["action"]
        assert (action < [3, 2, 4]).all()
        for row, chosen in enumerate(action):
            for k, (a, edge, n) in enumerate(zip(chosen, (0, 3, 5), (3, 2, 4))):
                legal = None if mask is None else mask[row, edge : edge + n]
                assert legal is None or legal[a] or not legal.any(), (row, k)


def test_a_run_without_world_is_refused():
    with pytest.raises(ConfigError, match=r"algo\.name=coma has a part that sees the world, but env\.world=none"):
        load_config(algo="coma", env="rookery/Credit-v0", overrides=["env.api=parallel", "env.world=none"])


def test_a_team_that_moves_is_told_which_algorithms_of_teams_can():
    with pytest.raises(ConfigError, match=r"use atoc or maddpg \(`rookery list algos`\), or wrap the env"):
        COMA(COMAConfig(), seen_by(), VECTORS, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_its_update_can_be_traced(name):
    make, batch_of = CASES[name]
    it = learner(make())
    graph, _, _ = trace(it, "update", it.prepare(batch_of(0)))
    assert len(list(graph.graph.nodes)) > 10
