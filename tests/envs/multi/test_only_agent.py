"""An env that answers with dicts and has one agent is stepped as an ordinary env, and nobody can tell."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rookery import Trainer, load_config
from rookery.core.errors import EnvError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, make_multi
from rookery.envs.engines.inprocess import InProcess
from rookery.envs.multi.engine import DictAgents
from rookery.envs.multi.one_agent import OneAgent


class Plain(gymnasium.Env):
    """A walk with random lengths."""

    observation_space = spaces.Box(-10, 10, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.normal(size=3).astype(np.float32)
        return self.x.copy(), {"new": True}

    def step(self, action):
        self.x = (0.9 * self.x + 0.3 * (2 * action - 1) + 0.1 * self.np_random.normal(size=3)).astype(np.float32)
        return self.x.copy(), float(-abs(self.x).sum()), bool(self.np_random.random() < 0.05), False, {"x": 1}


class Named:
    """The same, by name. `silent`: it says nothing of the agent at the end; `wrong`: what it does at its third step."""

    observation_spaces = {"walker": Plain.observation_space}
    action_spaces = {"walker": Plain.action_space}

    def __init__(self, silent=False, wrong=None):
        self.env, self.silent, self.wrong, self.told = Plain(), silent, wrong, 0

    def reset(self, *, seed=None):
        self.steps = 0
        obs, info = self.env.reset(seed=seed)
        return {"walker": obs}, {"walker": info}

    def step(self, actions):
        self.steps += 1
        obs, reward, terminated, truncated, info = self.env.step(actions["walker"])
        ends = {"walker": terminated, "__all__": terminated}, {"walker": truncated, "__all__": truncated}
        seen = {} if (terminated and self.silent) or (self.wrong == "waits" and self.steps == 3) else {"walker": obs}
        if self.wrong == "stranger" and self.steps == 3:
            seen["stranger"] = obs
        return seen, {"walker": reward}, *ends, {"walker": info}

    def tell(self, number):
        self.told = number


WORDS = {"env.num": 3, "model.hidden": "[8]", "store.min_fill": 64, "store.batch_size": 16, "train.max_steps": 600}
CONFIG = EnvConfig(api="dict", max_episode_steps=12)


def made(count=2, factory=Named, config=CONFIG):
    return make_multi(config, count=count, purpose="train", streams=Streams(0), factory=factory)


def weights(env, **changes):
    words = {**WORDS, "learning.mode": "eager", "env.max_episode_steps": 12, **changes}
    config = load_config(algo="dqn", env=env, overrides=[f"{key}={value}" for key, value in words.items()])
    with Trainer(config) as trainer:
        for _ in trainer:
            pass
        return trainer.learner.weights_sha256()


@pytest.mark.slow
def test_the_weights_are_those_of_the_same_env_through_gymnasium():
    here = "envs.multi.test_only_agent"
    expected = weights(f"{here}:Plain")
    assert weights(f"{here}:Named", **{"env.api": "dict"}) == expected
    clipped = {"env.wrappers": "[{name: reward_scale, kwargs: {factor: 0.5}}]"}
    assert weights(f"{here}:Named", **{"env.api": "dict"}, **clipped) == weights(f"{here}:Plain", **clipped) != expected


def test_the_agent_keeps_its_name_and_methods_are_reached():
    env = made()
    assert isinstance(env, OneAgent)
    assert env.agents == ("walker",)
    env.reset()
    env.call("tell", 5)
    assert env.call("told") == [5, 5]
    assert env.method("tell") is not None
    assert env.method("compute_reward") is None


def test_rows_and_ends_are_those_of_a_table():
    """Of a table for one: what 0.1 did."""
    env, streams = made(3), Streams(0)
    table = DictAgents(
        [Named() for _ in range(3)], lambda i, e: streams.seed_of("train", 0, i, e), max_episode_steps=12
    )
    rng = np.random.default_rng(0)
    for each in (env, table):
        each.reset()
    for _ in range(100):
        action = {"walker": rng.integers(0, 2, 3)}
        one, other = env.step(action), table.step(action)
        mine, its = one.agents["walker"], other.agents["walker"]
        for name in ("reward", "terminated", "truncated", "valid"):
            assert np.array_equal(getattr(mine, name), getattr(its, name)), name
        assert np.array_equal(env.obs["walker"], table.obs["walker"])
        assert [(i, obs.tolist()) for i, obs in mine.final] == [(i, obs.tolist()) for i, obs in its.final]
        ends = [[(e.env, e.episode, e.length, e.total, e.seed) for e in out.ended] for out in (one, other)]
        assert ends[0] == ends[1]
    assert env.episodes == table.episodes
    assert min(env.episodes) >= 5


@pytest.mark.parametrize("at_a_table", [False, True])
def test_a_saved_episode_goes_on_also_one_that_an_older_version_saved(at_a_table):
    streams = Streams(0)
    seed_of = lambda i, e: streams.seed_of("train", 0, i, e)  # noqa: E731
    env = DictAgents([Named() for _ in range(2)], seed_of, max_episode_steps=12) if at_a_table else made(2)
    env.reset()
    action = {"walker": np.array([0, 1])}
    for _ in range(7):
        env.step(action)
    again = made(2)
    again.restore(env.state())
    assert again.exactness == "exact"
    assert not again.renewed.any()
    for _ in range(30):
        one, other = env.step(action), again.step(action)
        assert np.array_equal(one.agents["walker"].reward, other.agents["walker"].reward)
        assert np.array_equal(env.obs["walker"], again.obs["walker"])
        assert [end.total for end in one.ended] == [end.total for end in other.ended]


def test_at_an_end_without_an_observation_it_is_the_one_acted_on():
    env = made(1, lambda: Named(silent=True))
    env.reset()
    before = env.obs["walker"].copy()
    for _ in range(200):
        out = env.step({"walker": np.array([1])}).agents["walker"]
        if out.terminated[0]:
            assert np.array_equal(out.final[0][1], before[0])
            return
        before = env.obs["walker"].copy()
    raise AssertionError("no episode ended")


@pytest.mark.parametrize(
    ("wrong", "words"), [("waits", r"\['walker'\] would wait for ever"), ("stranger", "speaks of an agent 'stranger'")]
)
def test_an_agent_that_waits_for_nobody_or_is_not_alone_is_told(wrong, words):
    config = EnvConfig(api="dict", faults={"renewals": 0})
    env = made(1, lambda: Named(wrong=wrong), config)
    env.reset()
    for _ in range(2):
        env.step({"walker": np.array([0])})
    with pytest.raises(EnvError, match=words):
        env.step({"walker": np.array([0])})


@pytest.mark.slow
def test_in_worker_processes_it_is_the_same():
    config = EnvConfig(
        id="envs.multi.test_only_agent:Named", api="dict", max_episode_steps=12, workers={"mode": "subprocess"}
    )
    there, here = made(2, None, config), made(2)
    try:
        for env in (there, here):
            env.reset()
        assert there.agents == ("walker",)
        for _ in range(40):
            action = {"walker": np.array([1, 0])}
            one, other = there.step(action), here.step(action)
            assert np.array_equal(one.agents["walker"].reward, other.agents["walker"].reward)
            assert np.array_equal(there.obs["walker"], here.obs["walker"])
    finally:
        there.close()


def test_the_engine_is_that_of_ordinary_envs():
    assert isinstance(made().vector, InProcess)
