"""One meaning for all engines: successors, ends, limits and counts are those of the task, whoever steps it.

The task is written down a second time here, in plain numpy, so that the true successor of every row is known.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import SyncVectorEnv

from rookery import Trainer, load_config
from rookery.acting.actor import Actor, Message
from rookery.acting.rules import EpsilonGreedy
from rookery.core.errors import ConfigError, UsageError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, make
from rookery.run.collect.collector import Collector

LIMIT, COUNT = 20, 4  # random pushes fell the pole in 8 … 60 steps: both kinds of ends occur
with_envpool = pytest.param("envpool", marks=pytest.mark.matrix)
ENGINES = ["gymnasium", "native", "vector_entry_point", with_envpool]
every_engine = pytest.mark.parametrize("engine", ENGINES)


def build(engine, name, count=COUNT, limit=LIMIT):
    if engine == "envpool":
        pytest.importorskip("envpool")
    if engine == "vector_entry_point":
        factory = vectored if name == "CartPole-v1" else synchronous
        config, by = EnvConfig(engine="native", kwargs={"max_episode_steps": limit}), factory
    else:
        config, by = EnvConfig(id=name, engine=engine, max_episode_steps=limit), None
    return make(config, count=count, purpose="train", streams=Streams(3), factory=by)


def vectored(num_envs, max_episode_steps):
    return CartPoleVectorEnv(num_envs, max_episode_steps=max_episode_steps)


def synchronous(num_envs, max_episode_steps):
    return SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1", max_episode_steps=max_episode_steps)] * num_envs)


def after_cart(obs, action):
    """(successors [N, 4], rewards, whether it is over)."""
    x, v, angle, omega = obs.astype(np.float64).T
    sine, cosine = np.sin(angle), np.cos(angle)
    push = (np.where(action == 1, 10.0, -10.0) + 0.05 * omega**2 * sine) / 1.1
    turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    after = np.stack(
        [x + 0.02 * v, v + 0.02 * (push - 0.05 * turn * cosine / 1.1), angle + 0.02 * omega, omega + 0.02 * turn], 1
    )
    over = (np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > np.radians(12))
    return after, np.ones(len(obs)), over


def after_pendulum(obs, action, clipped_first=True):
    angle, omega, torque = np.arctan2(obs[:, 1], obs[:, 0]), obs[:, 2], np.clip(action[:, 0], -2, 2)
    cost = angle**2 + 0.1 * omega**2 + 0.001 * torque**2
    omega = omega + (15 * np.sin(angle) + 3 * torque) * 0.05
    angle = angle + (np.clip(omega, -8, 8) if clipped_first else omega) * 0.05
    return np.stack([np.cos(angle), np.sin(angle), np.clip(omega, -8, 8)], 1), -cost, np.zeros(len(obs), bool)


def after_envpools_pendulum(obs, action):
    return after_pendulum(obs, action, clipped_first=False)


AFTER = {"CartPole-v1": after_cart, "Pendulum-v1": after_pendulum}


def actions(name, steps, count=COUNT):
    rng = np.random.default_rng(8)
    return rng.integers(0, 2, (steps, count)) if name == "CartPole-v1" else rng.normal(0, 2, (steps, count, 1))


@every_engine
@pytest.mark.parametrize("name", list(AFTER))
def test_every_valid_row_has_the_true_successor_reward_and_end(engine, name):
    env = build(engine, name)
    # EnvPool 1.2 turns its pendulum by the speed before it is clipped to ±8, gymnasium by the speed after
    after = after_envpools_pendulum if (engine, name) == ("envpool", "Pendulum-v1") else AFTER[name]
    env.reset()
    length, valid_rows, ended, lengths = np.zeros(COUNT, int), 0, 0, 0
    both = {"terminated": 0, "truncated": 0}
    dead = np.zeros(COUNT, bool)
    for action in actions(name, 400).astype(env.action_spec.dtype):
        before = env.obs.copy()
        out = env.step(action)
        assert out.valid.tolist() == (~dead).tolist()  # a hole is the dead step after an end, nothing else
        successor = out.obs.copy()
        for i, final in out.final:
            successor[i] = final
        expected, reward, over = after(before, action)
        rows = out.valid
        np.testing.assert_allclose(successor[rows], expected[rows], atol=2e-5)
        np.testing.assert_allclose(out.reward[rows], reward[rows], atol=2e-5)
        length += rows
        done = out.terminated | out.truncated
        assert out.terminated[rows].tolist() == over[rows].tolist()
        assert out.truncated[rows].tolist() == (length[rows] == LIMIT).tolist()
        assert [(end.env, end.length) for end in out.ended] == [(i, length[i]) for i in np.flatnonzero(done)]
        assert [i for i, _ in out.final] == np.flatnonzero(done).tolist()
        assert out.cut == []
        valid_rows, ended, lengths = valid_rows + rows.sum(), ended + done.sum(), lengths + length[done].sum()
        both["terminated"] += int(out.terminated.sum())
        both["truncated"] += int(out.truncated.sum())
        length[done] = 0
        dead = done if engine == "vector_entry_point" else np.zeros(COUNT, bool)
    env.close()
    assert valid_rows == lengths + length.sum()
    assert both["truncated"] > 30
    assert (both["terminated"] > 30) == (name == "CartPole-v1")


@every_engine
def test_a_fall_in_the_step_of_the_time_limit_is_still_a_fall(engine):
    def first_end(limit):
        env = build(engine, "CartPole-v1", count=1, limit=limit)
        env.reset()
        while not (ended := env.step(np.zeros(1, np.int64)).ended):
            pass
        env.close()
        return ended[0].length, ended[0].terminated, ended[0].truncated

    length, *flags = first_end(200)
    assert flags == [True, False]
    assert first_end(length) == (length, True, True)
    assert first_end(length - 1) == (length - 1, False, True)


@every_engine
def test_a_collected_chunk_holds_the_same_truths(engine):
    def even(s, obs, state, first):
        return {"q": torch.zeros(len(obs), 2, device="cpu")}, state

    actor = Actor(even, EpsilonGreedy(), None)
    actor.load(Message(version=1, knobs={"epsilon": 1.0}))
    collector = Collector(build(engine, "CartPole-v1"), actor, np.random.Generator(np.random.PCG64(0)))
    steps = episodes = holes = 0
    for _ in range(4):
        chunk = collector.collect(rows=64)["main"]
        rows, valid = chunk.rows, chunk.rows["valid"]
        following = np.concatenate([rows["obs"][1:], chunk.last_obs[None]])
        for (t, i), final in zip(chunk.final_at.tolist(), chunk.final_obs):
            following[t, i] = final
        expected, _, over = after_cart(rows["obs"][valid], rows["action"][valid])
        np.testing.assert_allclose(following[valid], expected, atol=2e-5)
        assert rows["terminated"][valid].tolist() == over.tolist()
        assert not (rows["terminated"] | rows["truncated"])[~valid].any()
        steps, episodes = steps + chunk.steps, episodes + len(chunk.episodes)
        holes += int((~valid).sum())
    assert episodes > 40
    assert steps + holes == 4 * 64 * COUNT
    dead = range(episodes - COUNT, episodes + 1) if engine == "vector_entry_point" else [0]  # one after every end
    assert holes in dead


@pytest.mark.matrix
def test_envpool_says_why_it_is_not_exact_and_a_restored_one_plays_other_episodes():
    env = build("envpool", "CartPole-v1")
    assert "begins new episodes" in env.exactness
    first = env.reset().copy()
    again = build("envpool", "CartPole-v1")
    assert np.array_equal(again.reset(), first)  # the seed of the run decides
    again.restore(env.state())
    assert not np.array_equal(again.obs, first)
    assert again.renewed.all()
    with pytest.raises(UsageError, match=r"env\.engine=gymnasium"):
        env.call("set_phase", 1)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"id": "ALE/Pong-v5"}, r"no env 'ALE/Pong-v5'\. EnvPool calls it 'Pong-v5'"),
        ({"id": "CartPol-v1"}, "Did you mean 'CartPole-v1'"),
        ({"id": "CartPole-v1", "kwargs": {"gravty": 1}}, r"env\.kwargs=.*gravty"),
        ({"id": "CartPole-v1", "wrappers": ("reward_clip",)}, r"env\.wrappers.*env\.engine=gymnasium"),
        ({}, r"needs env\.id"),
    ],
)
def test_what_envpool_lacks_is_said_in_a_sentence(config, told):
    pytest.importorskip("envpool")
    with pytest.raises(ConfigError, match=told):
        make(EnvConfig(engine="envpool", **config), count=2, purpose="train", streams=Streams(0))


@pytest.mark.matrix
def test_envpools_atari_gives_single_frames():
    pytest.importorskip("envpool")
    env = make(EnvConfig(id="Pong-v5", engine="envpool"), count=2, purpose="train", streams=Streams(0))
    assert env.obs_spec.shape == (1, 84, 84)
    env.reset()
    assert env.step(np.zeros(2, np.int64)).valid.all()
    env.close()


def test_a_missing_envpool_is_named_with_its_extra(monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "envpool" else real(name, *a))
    with pytest.raises(ConfigError, match=r'not installed: pip install "rookery\[envpool\]"'):
        make(EnvConfig(id="CartPole-v1", engine="envpool"), count=1, purpose="train", streams=Streams(0))


def test_training_on_the_native_engine_gives_the_weights_of_the_gymnasium_engine():
    def weights(engine):
        tree = {
            "env": {"engine": engine},
            "train": {"max_steps": 2048},
            "algo": {"epochs": 2},
            "eval": {"every_steps": 1024, "episodes": 2, "num": 2},
            "log": {"every_steps": 512, "sinks": ["jsonl"]},
            "learning": {"mode": "eager"},
        }
        trainer = Trainer(load_config(preset="cartpole-ppo", tree=tree))
        reports = list(trainer)
        return trainer.learner.weights_sha256(), [report.return_mean for report in reports]

    assert weights("native") == weights("gymnasium")
