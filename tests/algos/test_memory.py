"""Algorithms with memory: numbers by hand, padding does not count, and the memory that judges a
successor is the one after the step."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery.algos.dqn import DQN, DQNConfig
from rookery.algos.ppo import PPO, PPOConfig
from rookery.algos.r2d2 import R2D2, R2D2Config
from rookery.algos.sac import SAC, SACConfig
from rookery.core.errors import ConfigError
from rookery.core.rng import Streams
from rookery.core.spec import spec_of
from rookery.core.tree import tree_map
from rookery.learning.compiled.build import trace
from rookery.learning.learner import Learner
from rookery.nets import ModelConfig
from rookery.run.config.resolve import load_config
from rookery.run.trainer import Trainer

OBS, TWO = spec_of(spaces.Box(-1, 1, (3,), np.float32)), spec_of(spaces.Discrete(2))
GRU = ModelConfig(hidden=(8,), core={"kind": "gru", "size": 6})
LSTM = ModelConfig(hidden=(8,), core={"kind": "lstm", "size": 6})


def learner(algo, seed=0):
    it = Learner(algo, Streams(seed))
    it.set_knobs({name: schedule.resolved(1000).at(0) for name, schedule in algo.knobs().items()})
    return it


def windows(rows, columns, names=("h", "c"), seed=0):
    g = torch.Generator().manual_seed(seed)
    r = lambda *shape: torch.randn(*shape, generator=g)  # noqa: E731
    none = torch.zeros(rows, columns, dtype=torch.bool)
    return {
        "obs": r(rows, columns, 3), "next_obs": r(rows, columns, 3), "reward": r(rows, columns),
        "weight": torch.ones(columns),
        "action": torch.randint(0, 2, (rows, columns), generator=g), "terminated": none.clone(), "done": none.clone(),
        "first": none.clone(), "valid": ~none, "state": {name: r(1, columns, 6) for name in names},
    }  # fmt: skip


def column(batch, b, rows):
    return tree_map(lambda x: x[:rows, b : b + 1].clone() if x.dim() > 1 else x[b : b + 1].clone(), batch)


def test_the_target_of_r2d2_by_hand():
    algo = R2D2(
        R2D2Config(n_step=2, gamma=0.5, rescale=None, burn_in=0, sequence=3, overlap=0, dueling=False), OBS, TWO, GRU
    )
    it = learner(algo)
    for name, head in (("q", [3.0, 2.0]), ("q_target", [5.0, 7.0])):  # Q = bias: the online network prefers action 0
        value = it.nets[name].value
        value.zero_()
        value[-2:] = torch.tensor(head)
    batch = windows(3, 1, ("h",)) | {
        "reward": torch.tensor([[1.0], [2.0], [4.0]]),
        "action": torch.zeros(3, 1, dtype=torch.int64),
    }
    out = it.step(batch)[0]
    # rows 0 and 1 sum two rewards and bootstrap 5/4; row 2 has only its own: 4 + 5/2
    y = [1 + 1 + 1.25, 2 + 2 + 1.25, 4 + 2.5]
    assert out.metrics["target_mean"] == pytest.approx(sum(y) / 3)
    td = [abs(value - 3.0) for value in y]
    assert out.arrays["priority"].tolist() == pytest.approx([0.9 * max(td) + 0.1 * sum(td) / 3])
    assert out.metrics["q/loss"] == pytest.approx(sum(0.5 * t * t for t in td) / 3)


def test_rescaling_maps_the_target_and_its_bootstrap():
    algo = R2D2(
        R2D2Config(n_step=1, gamma=0.5, rescale=0.01, burn_in=0, sequence=1, overlap=0, dueling=False), OBS, TWO, GRU
    )
    it = learner(algo)
    it.nets["q"].value.zero_()
    it.nets["q_target"].value.zero_()
    it.nets["q_target"].value[-2:] = 1.03  # h(3) = √4 − 1 + 0.01 · 3
    out = it.step(windows(1, 1, ("h",)) | {"reward": torch.tensor([[6.5]])})[0]
    # R = 6.5 + 0.5 · h⁻¹(1.03) = 6.5 + 1.5 = 8; y = h(8) = √9 − 1 + 0.08
    assert out.metrics["target_mean"] == pytest.approx(2.08, abs=1e-5)


@pytest.mark.parametrize("burn_in", [0, 2])
def test_the_loss_of_a_padded_batch_equals_that_of_the_unpadded_sequences(burn_in):
    length = 4
    config = lambda rows: R2D2Config(n_step=3, burn_in=burn_in, sequence=rows, overlap=0)  # noqa: E731
    make = lambda rows: R2D2(config(rows), OBS, TWO, LSTM)  # noqa: E731
    batch = windows(burn_in + length, 2)
    batch["valid"][burn_in + 2 :, 1] = False  # the second sequence ends after two learnt rows
    batch["done"][burn_in + 1, 1] = batch["terminated"][burn_in + 1, 1] = True
    together = learner(make(length)).step(batch)[0]
    full = learner(make(length)).step(column(batch, 0, burn_in + 4))[0]
    short = learner(make(2)).step(column(batch, 1, burn_in + 2))[0]
    assert together.metrics["q/loss"] == pytest.approx(
        (4 * full.metrics["q/loss"] + 2 * short.metrics["q/loss"]) / 6, rel=1e-5
    )
    wanted = [full.arrays["priority"].item(), short.arrays["priority"].item()]
    assert together.arrays["priority"].tolist() == pytest.approx(wanted, rel=1e-5)


def test_what_padding_contains_changes_neither_loss_nor_gradient():
    algo = R2D2(R2D2Config(burn_in=2, sequence=3, overlap=0), OBS, TWO, LSTM)
    batch = windows(5, 2)
    batch["valid"][:1, 0] = batch["valid"][4:, 1] = False
    other = {**batch, "obs": batch["obs"].clone(), "reward": batch["reward"].clone()}
    other["obs"][0, 0] = other["obs"][4, 1] = 9.0
    other["reward"][4, 1] = 1e6
    one, two = learner(algo), learner(algo)
    assert one.step(batch)[0].metrics == pytest.approx(two.step(other)[0].metrics, rel=1e-6)
    assert torch.allclose(one.nets["q"].value, two.nets["q"].value, atol=1e-7)


def test_burn_in_moves_the_memory_but_is_not_learnt_from():
    algo = R2D2(R2D2Config(burn_in=2, sequence=2, overlap=0), OBS, TWO, GRU)
    batch = windows(4, 1, ("h",))
    loss = learner(algo).step(batch)[0].metrics["q/loss"]
    assert (
        learner(algo)
        .step(batch | {"reward": batch["reward"] + torch.tensor([[5.0], [5.0], [0.0], [0.0]])})[0]
        .metrics["q/loss"]
        == loss
    )
    changed = batch["obs"].clone()
    changed[0] += 1.0
    assert learner(algo).step(batch | {"obs": changed})[0].metrics["q/loss"] != loss


@pytest.mark.parametrize("burn_in", [0, 2])
def test_without_stored_state_sequences_begin_with_zeros(burn_in):
    make = lambda stored: R2D2(  # noqa: E731
        R2D2Config(burn_in=burn_in, sequence=2, overlap=0, stored_state=stored), OBS, TWO, LSTM
    )
    batch = windows(2 + burn_in, 3)
    zeros = batch | {"state": tree_map(torch.zeros_like, batch["state"])}
    wanted = learner(make(True)).step(zeros)[0].metrics
    assert learner(make(False)).step(batch)[0].metrics == wanted
    assert learner(make(True)).step(batch)[0].metrics["q/loss"] != wanted["q/loss"]


def rollout(rows=6, columns=4, seed=0, names=("policy", "value"), cells=("h", "c")):
    g = torch.Generator().manual_seed(seed)
    r = lambda *shape: torch.randn(*shape, generator=g)  # noqa: E731
    none = torch.zeros(rows, columns, dtype=torch.bool)
    return {
        "obs": r(rows, columns, 3), "action": torch.randint(0, 2, (rows, columns), generator=g),
        "reward": r(rows, columns),
        "logp": -0.7 + 0.1 * r(rows, columns), "last_obs": r(columns, 3), "final_obs": r(0, 3),
        "final_at": torch.zeros(0, 2).long(),
        "terminated": none.clone(), "truncated": none.clone(), "first": none.clone(), "valid": ~none,
        "state": {name: {cell: r(rows, columns, 6) for cell in cells} for name in names},
    }  # fmt: skip


def test_a_rollout_cut_into_sequences_starts_each_from_its_recorded_state():
    algo = PPO(PPOConfig(rollout=6, sequence=3, minibatches=2), OBS, TWO, LSTM)
    batch, it = rollout(), learner(algo)
    rows = it.prepare(batch)
    assert rows["obs"].shape == (3, 8, 3)  # two sequences of each of four columns
    assert torch.equal(rows["obs"][:, 1], batch["obs"][:3, 1])
    assert torch.equal(rows["obs"][:, 5], batch["obs"][3:, 1])
    assert torch.equal(rows["state"]["value"]["c"][0, 5], batch["state"]["value"]["c"][3, 1])


def test_the_final_observation_is_judged_with_the_memory_after_the_step():
    algo = PPO(PPOConfig(gamma=0.5, lam=0.0, normalise_advantage=False), OBS, TWO, GRU)
    batch, it = rollout(3, 1, cells=("h",)), learner(algo)
    batch["truncated"][1, 0] = batch["first"][2, 0] = batch["first"][0, 0] = True
    batch |= {"final_at": torch.tensor([[1, 0]]), "final_obs": torch.randn(1, 3)}
    target = it.prepare(batch)["target"].squeeze(1)
    with torch.no_grad():
        ac, state = it.eager.ac, {name: {"h": torch.zeros(1, 6)} for name in ("policy", "value")}
        for t in range(2):
            state = ac.step(batch["obs"][t], state)[2]
        judged = ac.step(batch["final_obs"], state)[1]
    assert target[1].item() == pytest.approx((batch["reward"][1] + 0.5 * judged).item(), abs=1e-6)


def test_holes_of_a_rollout_do_not_count_and_do_not_move_the_memory():
    algo = PPO(PPOConfig(epochs=1, minibatches=1), OBS, TWO, LSTM)
    batch = rollout(4, 2)
    batch["valid"][1, 0] = False
    other = {**batch, "obs": batch["obs"].clone(), "logp": batch["logp"].clone()}
    other["obs"][1, 0], other["logp"][1, 0] = 7.0, -9.0
    one, two = learner(algo), learner(algo)
    for it, rows in ((one, batch), (two, other)):
        for _ in algo.learn(it, rows, np.random.default_rng(0)):
            pass
    assert torch.allclose(one.nets["ac"].value, two.nets["ac"].value, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "name", "batch"), [
    (lambda: R2D2(R2D2Config(burn_in=1, sequence=2, overlap=0), OBS, TWO, LSTM), "update", lambda it: windows(3, 2)),
    (lambda: PPO(PPOConfig(rollout=6, sequence=2), OBS, TWO, GRU), "update",
        lambda it: it.prepare(rollout(cells=("h",)))),
])  # fmt: skip
def test_updates_with_memory_can_be_traced(algo, name, batch):
    it = learner(algo())
    graph, _, found = trace(it, name, batch(it))
    assert found["metrics"]
    assert len(list(graph.graph.nodes)) > 50


def test_who_has_a_memory_and_who_needs_one():
    with pytest.raises(
        ConfigError, match=r"algo\.name=dqn does not learn from sequences\. Use a2c, appo, impala, ppo or r2d2"
    ):
        DQN(DQNConfig(), OBS, TWO, GRU)
    box = spec_of(spaces.Box(-1, 1, (2,), np.float32))  # where r2d2 cannot act
    with pytest.raises(
        ConfigError, match=r"algo\.name=sac does not learn from sequences\. Use a2c, appo, impala or ppo, or"
    ):
        SAC(SACConfig(), OBS, box, GRU)
    with pytest.raises(ConfigError, match=r"algo\.name=r2d2 needs a memory: set model\.core"):
        R2D2(R2D2Config(), OBS, TWO, ModelConfig())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["store.max_staleness=12"], r"store\.max_staleness is set, but algo\.name=r2d2 learns from sequences"),
        (["store.max_reuse=2"], r"store\.max_reuse is set"),
        (["store.capacity=150", "env.num=8"], r"none would ever be complete\. Raise store\.capacity to at least 240"),
    ],
)
def test_what_sequences_cannot_have_is_said_before_the_start(words, told):
    config = load_config(algo="r2d2", env="CartPole-v1", overrides=["store.min_fill=50", "train.max_steps=100", *words])
    with pytest.raises(ConfigError, match=told):
        Trainer(config)


def test_the_recorded_state_counts_in_the_memory_estimate(monkeypatch):
    monkeypatch.setattr("rookery.data.replay.store.available_bytes", lambda: 100_000_000)
    words = ["store.capacity=200000", "store.min_fill=64", "model.core.size=64", "train.max_steps=100"]
    with pytest.raises(ConfigError, match=r"store\.capacity=200000 needs"):
        Trainer(load_config(algo="r2d2", env="CartPole-v1", overrides=words))
    Trainer(load_config(algo="dqn", env="CartPole-v1", overrides=[*words[:2], words[3]])).shut()


def test_a_restored_env_that_begins_another_episode_begins_another_memory():
    config = load_config(
        algo="r2d2",
        env="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",
        overrides=["store.min_fill=50", "train.max_steps=400", "env.engine=native", "env.num=2"],
    )
    with Trainer(config) as one, Trainer(config) as two:
        for _ in range(20):
            one.round()
        two.restore(one.state())
        assert two.pool.collectors[0].rows["main"].first.all()
        two.pool.collectors[0].greedy = True
        chunks = two.pool.collectors[0].collect(1)
        assert not chunks["main"].rows["state"]["h"].any()
