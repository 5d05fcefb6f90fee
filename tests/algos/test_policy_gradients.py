"""A2C, REINFORCE, TRPO and PPG: losses worked out by hand, and what each does with ends and holes."""

import math

import numpy as np
import pytest
import torch

from algos.test_updates import BOX, OBS, SMALL, TWO, learner, rollout
from rookery.algos.a2c import A2C, A2CConfig
from rookery.algos.appo import APPO, APPOConfig
from rookery.algos.impala import IMPALA, IMPALAConfig
from rookery.algos.ppg import PPG, PPGConfig
from rookery.algos.ppo import PPO, PPOConfig
from rookery.algos.reinforce import Reinforce, ReinforceConfig
from rookery.algos.trpo import TRPO, TRPOConfig
from rookery.core.errors import ConfigError
from rookery.learning.compiled.build import trace
from rookery.learning.optim import Adam, RMSprop
from rookery.run.config.resolve import load_config
from rookery.run.execution import choose_mode
from selection import slow_but


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
        "obs": torch.zeros(n, 1, 3), "action": torch.zeros(n, 1, dtype=torch.int64),
        "reward": torch.tensor(rewards).unsqueeze(1),
        "logp": torch.full((n, 1), -math.log(2)), "valid": torch.ones(n, 1, dtype=torch.bool),
        "last_obs": torch.zeros(1, 3),
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
    for options, kind in ({}, RMSprop), ({"optimiser": "adam"}, Adam):
        algo = A2C(A2CConfig(**options), OBS, TWO, SMALL)
        made = algo.chosen(algo.optimisers()["ac"])
        assert (type(made), made.eps) == (kind, 1e-5)


def test_the_losses_of_impala_by_hand():
    # as above, but μ took the action with probability 1, so π/μ = ½: ρ = c = ½
    # row 1 ends: v = ½ 2 = 1, A = ½ 2 = 1, G − V = 2, U = 1;  row 0: v = ½ 1 + ½ ½ 1 = ¾, A = ½ (1 + ½ 1)
    # = ¾;  G = 1 + ½ 2 = 2, U = 1
    # L_π = (⅞ + 2 · 1) log 2,  L_V = ½ (1 + 9/16) / 2
    it = blank(IMPALA(IMPALAConfig(gamma=0.5, upgo=2.0), OBS, TWO, SMALL))
    batch = column([1.0, 2.0], terminated=[1])
    out = it.step(it.prepare(batch | {"logp": torch.zeros_like(batch["logp"])}))[0].metrics
    assert out["policy_loss"] == pytest.approx(2.875 * math.log(2))
    assert out["value_loss"] == pytest.approx(25 / 64)
    assert out["ratio"] == pytest.approx(0.5)
    assert out["ac/loss"] == pytest.approx(2.865 * math.log(2) + 25 / 128)


def test_without_lag_impala_is_a2c():
    batch = column([1.0, 2.0, 3.0], truncated=[1])
    a, b = blank(A2C(A2CConfig(), OBS, TWO, SMALL)), blank(IMPALA(IMPALAConfig(), OBS, TWO, SMALL))
    mine, theirs = a.prepare(batch), b.prepare(batch)
    for key in ("advantage", "target"):
        assert mine[key].tolist() == pytest.approx(theirs[key].tolist())


def test_appo_clips_around_the_policy_that_met_the_batch_and_not_around_the_one_that_acted():
    # π/μ = ½ when the batch arrives, far outside the clip range; yet the first step has ratio 1 and nothing is clipped
    it = blank(APPO(APPOConfig(gamma=0.5, normalise_advantage=False), OBS, TWO, SMALL))
    batch = column([1.0, 2.0], terminated=[1])
    out = it.step(it.prepare(batch | {"logp": torch.zeros_like(batch["logp"])}))[0].metrics
    assert (out["clip_fraction"], out["kl"], out["ratio"]) == (0.0, 0.0, 0.5)
    assert out["policy_loss"] == pytest.approx(-0.875)  # −mean A = −(¾ + 1) / 2


def test_the_losses_of_reinforce_by_hand():
    # γ = ½: G = 1 + ½ · 2 = 2, then 2; V = 0. L_π = 2 log 2, L_V = ½ · 4
    it = blank(Reinforce(ReinforceConfig(gamma=0.5, normalise_return=False), OBS, TWO, SMALL))
    out = it.step(it.prepare(column([1.0, 2.0], terminated=[1])))[0].metrics
    assert out["policy/loss"] == pytest.approx(2 * math.log(2))
    assert out["value/loss"] == pytest.approx(2.0)
    assert (out["return_to_go"], out["used"]) == (2.0, 1.0)


def test_the_baseline_of_reinforce_stands_for_what_a_cut_episode_would_still_bring():
    it = blank(Reinforce(ReinforceConfig(gamma=0.5, normalise_return=False), OBS, TWO, SMALL))
    with torch.no_grad():
        it.nets["value"].module.head.bias.fill_(8.0)
    rows = it.prepare(column([1.0, 2.0, 4.0], truncated=[1]))
    # time limit after row 1: 2 + ½ 8 = 6, and 1 + ½ 6 = 4; the rollout's end: 4 + ½ 8 = 8
    assert rows["target"].tolist() == pytest.approx([4.0, 6.0, 8.0])
    assert rows["advantage"].tolist() == pytest.approx([-4.0, -2.0, 0.0])
    assert it.prepare(column([1.0, 2.0, 4.0], terminated=[1]))["target"].tolist() == pytest.approx([2.0, 2.0, 8.0])


def test_without_a_baseline_steps_of_running_episodes_are_left_out():
    config = ReinforceConfig(gamma=0.5, baseline=False, normalise_return=False)
    it = blank(Reinforce(config, OBS, TWO, SMALL))
    assert set(it.nets) == {"policy"}
    rows = it.prepare(column([1.0, 2.0, 4.0], truncated=[1]))
    assert rows["advantage"][:2].tolist() == [2.0, 2.0]  # 1 + ½ · 2, and 2: the time limit counts as an end
    assert rows["valid"].tolist() == [1.0, 1.0, 0.0]
    out = it.step(rows)[0].metrics
    assert out["policy/loss"] == pytest.approx(2 * math.log(2))
    assert out["used"] == pytest.approx(2 / 3)


def test_without_a_baseline_a_rollout_without_an_end_teaches_nothing():
    algo = Reinforce(ReinforceConfig(baseline=False), OBS, TWO, SMALL)
    it = blank(algo)
    assert list(algo.learn(it, column([1.0, 2.0]), np.random.default_rng(0))) == []
    assert it.updates == 0
    assert len(list(algo.learn(it, column([1.0, 2.0], terminated=[0]), np.random.default_rng(0)))) == 1


@pytest.mark.parametrize("space", [TWO, BOX])
def test_a_step_of_trpo_keeps_its_distance_and_lowers_the_loss(space):
    algo = TRPO(TRPOConfig(radius=0.02, epochs=1, minibatches=1), OBS, space, SMALL)
    it = learner(algo)
    for i in range(5):
        before, critic = it.nets["policy"].value.clone(), it.nets["value"].value.clone()
        (first,) = algo.learn(it, rollout(i, space), np.random.default_rng(0))
        told = first[0].metrics
        assert 0 < told["policy/kl"] <= 0.02
        assert told["policy/improvement"] > 0
        assert told["policy/step"] > 0
        assert not torch.equal(before, it.nets["policy"].value)
        assert not torch.equal(critic, it.nets["value"].value)
    assert it.updates == 5


def test_the_policy_of_trpo_moves_once_per_rollout_and_its_critic_in_every_minibatch():
    algo = TRPO(TRPOConfig(epochs=3, minibatches=2), OBS, TWO, SMALL)
    it = learner(algo)
    outputs = list(algo.learn(it, rollout(0, TWO), np.random.default_rng(0)))
    assert [len(out) for out in outputs] == [2, 1, 1, 1, 1, 1]
    assert [out[-1].names for out in outputs] == [("value/loss", "value/grad_norm")] * 6


def test_an_advantage_of_zero_moves_no_policy():
    """Nothing can be improved: the line search gives up and puts the old numbers back."""
    algo = TRPO(TRPOConfig(gamma=0.5, normalise_advantage=False), OBS, TWO, SMALL)
    it = blank(algo)
    before = it.nets["policy"].value.clone()
    told = algo.move(it, it.prepare(column([0.0, 0.0]))).metrics
    assert (told["policy/step"], told["policy/kl"]) == (0.0, 0.0)
    assert torch.equal(before, it.nets["policy"].value)


def test_the_joint_loss_of_ppg_by_hand():
    # new logits 0, old logits (log 3, 0): KL = ¾ log(¾ / ½) + ¼ log(¼ / ½); V_π = 0, R = 2 and 4: ½ (4 + 16) / 2 = 5
    it = blank(PPG(PPGConfig(clone=2.0), OBS, TWO, SMALL))
    old = torch.tensor([[math.log(3), 0.0]] * 2)
    batch = {
        "obs": torch.zeros(2, 3),
        "target": torch.tensor([2.0, 4.0]),
        "valid": torch.ones(2),
        "old": {"logits": old},
    }
    out = it.step(batch, "auxiliary")[0].metrics
    kl = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert out["auxiliary/value_loss"] == pytest.approx(5.0)
    assert out["auxiliary/kl"] == pytest.approx(kl)
    assert out["auxiliary/loss"] == pytest.approx(5.0 + 2.0 * kl)
    assert out["value/loss"] == pytest.approx(5.0)


def test_the_losses_of_the_policy_phase_of_ppg_by_hand():
    # as A2C's numbers above, ρ = 1: L_π = −mean A = −2, minus 0.01 log 2; L_V = ½ · 4
    it = blank(PPG(PPGConfig(gamma=0.5, lam=1.0, normalise_advantage=False), OBS, TWO, SMALL))
    out = it.step(it.prepare(column([1.0, 2.0], terminated=[1])))[0].metrics
    assert out["policy/loss"] == pytest.approx(-2.0 - 0.01 * math.log(2))
    assert out["value/loss"] == pytest.approx(2.0)
    assert out["kl"] == pytest.approx(0.0, abs=1e-7)


def phasic(phase=3):
    options = {"phase": phase, "minibatches": 2, "auxiliary_epochs": 2, "auxiliary_minibatches": 4}
    return PPG(PPGConfig(**options), OBS, TWO, SMALL)


def test_the_auxiliary_phase_comes_after_every_nth_rollout_and_has_moments_of_its_own():
    algo = phasic()
    it, names = learner(algo), []
    for i in range(6):
        moments = it.tensors["auxiliary.m"].clone()
        outputs = list(algo.learn(it, rollout(i, TWO), np.random.default_rng(i)))
        names.append([("auxiliary/loss" in out[0].names) for out in outputs])
        assert torch.equal(moments, it.tensors["auxiliary.m"]) == (i % 3 < 2)
        assert len(it.kept) == (i + 1) % 3
    assert names == [[False] * 2, [False] * 2, [False] * 2 + [True] * 8] * 2
    assert it.updates == 6 * 2 + 2 * 8
    assert it.tensors["auxiliary.count"] == 16
    assert it.tensors["policy.count"] == 12


def test_a_phase_that_is_restored_in_its_middle_goes_on_to_the_bit():
    algo = phasic()
    one = learner(algo)
    for i in range(5):
        list(algo.learn(one, rollout(i, TWO), np.random.default_rng(i)))
    other = phasic()
    two = learner(other, seed=7)
    two.restore(one.state())
    for i in range(5, 9):
        list(algo.learn(one, rollout(i, TWO), np.random.default_rng(i)))
        list(other.learn(two, rollout(i, TWO), np.random.default_rng(i)))
    assert one.weights_sha256() == two.weights_sha256()
    assert all(torch.equal(one.tensors[key], two.tensors[key]) for key in one.tensors)


def test_what_ppg_keeps_is_not_the_memory_of_the_store():
    """The store overwrites its buffers: a kept rollout must not change with them."""
    algo = phasic()
    it, batch = learner(algo), rollout(0, TWO)
    list(algo.learn(it, batch, np.random.default_rng(0)))
    before = it.kept["0"]["obs"].clone()
    batch["obs"].fill_(9.0)
    assert torch.equal(it.kept["0"]["obs"], before)


@pytest.mark.parametrize(
    ("algo", "words", "told"),
    [
        ("trpo", ["algo.minibatches=7"],
            r"algo\.minibatches=7 must divide env\.num × pool\.workers × algo\.rollout \(128\) = 1024"),
        ("ppg", ["algo.minibatches=7"], r"algo\.minibatches=7 must divide .* = 1024"),
        ("ppg", ["algo.phase=1", "algo.auxiliary_minibatches=7"],
            r"algo\.auxiliary_minibatches=7 must divide .*algo\.phase \(1\) = 1024"),
        ("a2c", ["algo.curiosity={kind: rdn}"], r"algo\.curiosity\.kind: expected rnd \| icm"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_in_a_sentence(algo, words, told):
    with pytest.raises(ConfigError, match=told):
        load_config(algo=algo, env="CartPole-v1", overrides=["train.max_steps=100", *words])


def test_trpo_says_why_it_is_never_compiled():
    words = ["train.max_steps=4096", "learning.mode=compiled"]
    with pytest.raises(ConfigError, match="the policy's step searches for its length"):
        choose_mode(load_config(algo="trpo", env="CartPole-v1", overrides=words))


CASES = {
    "a2c": (lambda: A2C(A2CConfig(optimiser="adam"), OBS, TWO, SMALL), lambda i: rollout(i, TWO)),
    "a2c-rmsprop": (lambda: A2C(A2CConfig(), OBS, BOX, SMALL), lambda i: rollout(i, BOX)),
    "a2c-rnd": (lambda: A2C(A2CConfig(optimiser="adam", curiosity={"kind": "rnd"}), OBS, BOX, SMALL),
        lambda i: rollout(i, BOX)),
    "ppo-icm": (lambda: PPO(PPOConfig(curiosity={"kind": "icm"}), OBS, TWO, SMALL), lambda i: rollout(i, TWO)),
    "reinforce": (lambda: Reinforce(ReinforceConfig(), OBS, TWO, SMALL), lambda i: rollout(i, TWO)),
    "ppg": (lambda: PPG(PPGConfig(), OBS, BOX, SMALL), lambda i: rollout(i, BOX)),
    "impala": (lambda: IMPALA(IMPALAConfig(optimiser="adam", upgo=0.5), OBS, TWO, SMALL), lambda i: rollout(i, TWO)),
    "appo": (lambda: APPO(APPOConfig(), OBS, BOX, SMALL), lambda i: rollout(i, BOX)),
}  # fmt: skip


@pytest.mark.parametrize("name", slow_but(CASES, "reinforce"))
def test_every_update_can_be_traced(name):
    algo = CASES[name][0]()
    it = learner(algo)
    graph, _, _ = trace(it, "update", it.prepare(CASES[name][1](0)))
    assert len(list(graph.graph.nodes)) > 10


def auxiliary_batch(it, i):
    rows = it.prepare(rollout(i, BOX))
    batch = {name: rows[name] for name in ("obs", "target", "valid")}
    with torch.no_grad():
        old = it.eager.policy.policy(rows["obs"])
    return batch | {"old": {key: value + 0.1 for key, value in old.items()}}


@pytest.mark.slow
def test_the_auxiliary_update_of_ppg_can_be_traced():
    it = learner(CASES["ppg"][0]())
    assert "auxiliary/loss" in trace(it, "auxiliary", auxiliary_batch(it, 0))[2]["metrics"]


@pytest.mark.matrix
def test_the_compiled_auxiliary_update_equals_the_eager_one(artefacts):
    eager, compiled = (learner(CASES["ppg"][0](), mode, artefacts) for mode in ("eager", "compiled"))
    for i in range(10):
        batch = auxiliary_batch(eager, i)
        compiled.restore(eager.state())
        ours, theirs = (it.step(batch, "auxiliary")[0] for it in (eager, compiled))
        assert set(compiled.compiled) == {"auxiliary"}
        for key, tensor in eager.tensors.items():
            assert (compiled.tensors[key] - tensor).norm() <= 1e-5 * tensor.norm().clamp(min=1e-4), (i, key)
        assert theirs.metrics == pytest.approx(ours.metrics, rel=1e-3, abs=1e-5)
