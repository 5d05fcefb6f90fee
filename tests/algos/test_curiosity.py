"""Curiosity: the bonus by hand, what it changes and what it must not change, and that its
statistics are part of the state."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pydantic import ValidationError

from algos.test_updates import BOX, OBS, SMALL, TWO, learner, rollout
from rookery.algos.a2c import A2C, A2CConfig
from rookery.algos.appo import APPO
from rookery.algos.curiosity import CuriosityConfig
from rookery.algos.impala import IMPALA
from rookery.algos.ppg import PPG
from rookery.algos.ppo import PPO, PPOConfig
from rookery.algos.reinforce import Reinforce
from rookery.algos.trpo import TRPO
from rookery.core.spec import spec_of
from rookery.learning.compiled.build import trace
from rookery.nets import ModelConfig
from selection import matrix_but

PLAIN = {"gamma": 0.5, "lam": 1.0, "normalise_advantage": False, "normalise_return": False}
EVERYBODY = [A2C, PPO, Reinforce, PPG, TRPO, IMPALA, APPO]


def two_rows():
    """One column: the episode terminates after row 0, another begins."""
    flags = {name: torch.zeros(2, 1, dtype=torch.bool) for name in ("terminated", "truncated", "first")}
    flags["terminated"][0] = True
    return flags | {
        "obs": torch.zeros(2, 1, 3), "action": torch.zeros(2, 1, dtype=torch.int64),
        "reward": torch.tensor([[1.0], [2.0]]),
        "logp": torch.full((2, 1), math.log(0.5)), "valid": torch.ones(2, 1, dtype=torch.bool),
        "last_obs": torch.zeros(1, 3),
        "final_obs": torch.zeros(1, 3), "final_at": torch.tensor([[0, 0]]),
    }  # fmt: skip


def blank(kind="rnd", cls=A2C, **options):
    """A learner whose networks are all zero, but for the embedding of every observation, (2, 2, 2)."""
    known = {name: number for name, number in PLAIN.items() if name in cls.Config.model_fields}
    config = cls.Config(**known, curiosity={"kind": kind, "features": 3, "gamma": 0.9, **options})
    it = learner(cls(config, OBS, TWO, SMALL))
    for net in it.nets.values():
        net.value.zero_()
    with torch.no_grad():
        module = it.nets["curiosity"].module
        (module.fixed if kind == "rnd" else module.features).head.bias.fill_(2.0)
    return it


@pytest.mark.parametrize("cls", EVERYBODY)
@pytest.mark.parametrize(("episodic", "first"), [(False, 0.1 + 0.9 * 0.1), (True, 0.1)])
def test_the_bonus_of_rnd_by_hand_and_its_return_goes_on_beyond_the_end_unless_episodic(episodic, first, cls):
    # b = 3 · 2² = 12 in both rows, so √E[b²] = 12 and i = (1 − 0.9) · 12 / 12 = 0.1; V = 0, λ = 1: A_1
    # = 0.1, A_0 = 0.1 + 0.9 · 0.1
    rows = blank(cls=cls, episodic=episodic, weight=3.0).prepare(two_rows())
    assert rows["bonus"].tolist() == pytest.approx([12.0, 12.0])
    assert rows["bonus_target"].tolist() == pytest.approx([first, 0.1], abs=1e-6)
    assert rows["advantage"].tolist() == pytest.approx([1.0 + 3.0 * first, 2.0 + 3.0 * 0.1], abs=1e-6)
    assert rows["target"].tolist() == [1.0, 2.0]  # of the reward alone
    assert rows["value"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("cls", [IMPALA, APPO])
def test_a_rollout_of_older_weights_has_the_return_of_its_bonus_corrected(cls):
    # μ took the action surely, π half the time: ρ = c = ½. v_1 = ½ · 0.1, v_0 = ½ · 0.1 + 0.9 · ½
    # v_1, A_0 = ½ (0.1 + 0.9 v_1)
    rows = blank(cls=cls, weight=3.0).prepare(two_rows() | {"logp": torch.zeros(2, 1)})
    assert rows["bonus_target"].tolist() == pytest.approx([0.0725, 0.05], abs=1e-6)
    assert rows["advantage"].tolist() == pytest.approx([0.5 + 3.0 * 0.0725, 1.0 + 3.0 * 0.05], abs=1e-6)


@pytest.mark.parametrize("kind", ["rnd", "icm"])
def test_the_first_bonus_is_that_of_normalised_observations(kind):
    """Else large observations would make it so large that later ones, in units of the mean so far, are nothing."""
    found = []
    for scale in (1.0, 1000.0):
        it = learner(PPO(PPOConfig(curiosity={"kind": kind}), OBS, TWO, SMALL))
        batch = rollout(0, TWO)
        found.append(it.prepare(batch | {name: scale * batch[name] for name in ("obs", "last_obs", "final_obs")}))
    small, large = (rows["bonus"][0].item() for rows in found)
    assert large == pytest.approx(small, rel=1e-3)


@pytest.mark.parametrize("cls", EVERYBODY)
def test_the_losses_of_rnd_by_hand(cls):
    it = blank(cls=cls)
    out = it.step(it.prepare(two_rows()))[0].metrics
    assert out["curiosity/forward_loss"] == pytest.approx(12.0)
    critic = 0.5 * (0.19**2 + 0.1**2) / 2
    assert out["curiosity/value_loss"] == pytest.approx(critic, rel=1e-4)
    assert out["curiosity/loss"] == pytest.approx(12.0 + 0.5 * critic, rel=1e-5)
    assert "curiosity/inverse_loss" not in out


def test_the_losses_of_icm_by_hand():
    # f = 0 and φ' = (2, 2, 2): ½ · 12 = 6; logits 0: −log ½; β = 0.2
    it = blank("icm", value_cost=0.0)
    out = it.step(it.prepare(two_rows()))[0].metrics
    assert out["curiosity/bonus"] == pytest.approx(6.0)
    assert out["curiosity/forward_loss"] == pytest.approx(6.0)
    assert out["curiosity/inverse_loss"] == pytest.approx(math.log(2))
    assert out["curiosity/loss"] == pytest.approx(0.8 * math.log(2) + 0.2 * 6.0)


def test_holes_neither_count_in_the_statistics_nor_in_the_losses():
    it, other = (learner(PPO(PPOConfig(curiosity={}), OBS, TWO, SMALL)) for _ in range(2))
    batch = rollout(0, TWO)
    assert not batch["valid"].all()
    changed = batch | {"reward": torch.where(batch["valid"], batch["reward"], 1e3)}
    holes = ~batch["valid"]
    changed["action"] = torch.where(holes, 1 - batch["action"], batch["action"])
    for one, rows in ((it, batch), (other, changed)):
        one.step(one.prepare(rows))
    assert torch.equal(it.tensors["curiosity.stats"], other.tensors["curiosity.stats"])
    assert torch.equal(it.tensors["curiosity.value"], other.tensors["curiosity.value"])


def test_the_random_features_never_move_and_the_others_do():
    it = learner(PPO(PPOConfig(curiosity={"kind": "rnd"}), OBS, TWO, SMALL))
    module = it.nets["curiosity"].module
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    for i in range(3):
        it.step(it.prepare(rollout(i, TWO)))
    for name, p in module.named_parameters():
        assert torch.equal(before[name], p) == name.startswith("fixed."), name


@pytest.mark.slow
def test_what_was_seen_often_is_foreseen():
    it = learner(A2C(A2CConfig(lr=1e-2, optimiser="adam", curiosity={"kind": "rnd"}), OBS, TWO, SMALL))
    batch = rollout(0, TWO)
    bonus = [it.step(it.prepare(batch))[0].metrics["curiosity/bonus"] for _ in range(200)]
    assert bonus[-1] < 0.1 * bonus[1]


@pytest.mark.parametrize("cls", EVERYBODY)
def test_without_weight_the_policy_and_its_numbers_are_those_without_curiosity(cls):
    """The same first weights, the same losses: what is reported of the reward does not know of the bonus."""
    plain, curious = (
        learner(cls(cls.Config(curiosity=bonus), OBS, TWO, SMALL)) for bonus in (None, {"kind": "rnd", "weight": 0.0})
    )
    for i in range(5):
        batch = rollout(i, TWO)
        ours, theirs = (it.step(it.prepare(batch))[0].metrics for it in (plain, curious))
        assert {key: theirs[key] for key in ours} == ours
    own = [name for name in plain.nets if name != "curiosity"]
    assert all(torch.equal(plain.tensors[f"{name}.value"], curious.tensors[f"{name}.value"]) for name in own)


def test_the_statistics_are_part_of_the_state():
    config = PPOConfig(curiosity={"kind": "rnd"})
    one, two = (learner(PPO(config, OBS, TWO, SMALL), seed=seed) for seed in (0, 1))
    for i in range(3):
        one.step(one.prepare(rollout(i, TWO)))
    two.restore(one.state())
    a, b = (it.prepare(rollout(9, TWO)) for it in (one, two))
    assert torch.equal(a["advantage"], b["advantage"])
    assert one.nets["curiosity"].module.size.count > 0


SPACES = {
    "box": (OBS, BOX, lambda: rollout(0, BOX)),
    "discrete": (OBS, TWO, lambda: rollout(0, TWO)),
}


TRACED = [(cls, space, kind) for cls in EVERYBODY for space in SPACES for kind in ("rnd", "icm")]


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "space", "kind"), matrix_but(TRACED, (PPO, "discrete", "rnd")))
def test_updates_with_curiosity_can_be_traced(cls, space, kind):
    obs, action, batch = SPACES[space]
    it = learner(cls(cls.Config(curiosity={"kind": kind}), obs, action, SMALL))
    graph, _, found = trace(it, "update", it.prepare(batch()))
    assert "curiosity/loss" in found["metrics"]
    assert len(list(graph.graph.nodes)) > 50


@pytest.mark.parametrize("kind", ["rnd", "icm"])
def test_masks_memory_and_several_choices_go_with_it(kind):
    several = spec_of(spaces.MultiDiscrete([2, 3]))
    mask = spec_of(spaces.Dict({"obs": spaces.Box(-1, 1, (3,), np.float32), "action_mask": spaces.MultiBinary(5)}))
    it = learner(PPO(PPOConfig(curiosity={"kind": kind}), mask, several, SMALL))
    batch = rollout(0, TWO)
    for name in ("obs", "last_obs", "final_obs"):
        batch[name] = {"obs": batch[name], "action_mask": torch.ones(*batch[name].shape[:-1], 5, dtype=torch.int8)}
    batch["action"] = torch.stack([batch["action"], 2 * batch["action"]], -1)
    assert it.step(it.prepare(batch))[0].metrics["curiosity/bonus"] > 0

    memory = A2C(
        A2CConfig(curiosity={"kind": kind}), OBS, TWO, ModelConfig(hidden=(8,), core={"kind": "gru", "size": 6})
    )
    it, batch = learner(memory), rollout(0, TWO)
    batch |= {"first": torch.zeros(6, 4, dtype=torch.bool)}
    batch |= {"state": {name: {"h": torch.zeros(6, 4, 6)} for name in ("policy", "value")}}
    assert it.step(it.prepare(batch))[0].metrics["curiosity/bonus"] > 0


def test_an_option_of_the_other_kind_is_refused():
    with pytest.raises(
        ValidationError, match=r"algo\.curiosity\.forward=0\.5 would be ignored: it belongs to kind=icm"
    ):
        CuriosityConfig(kind="rnd", forward=0.5)
