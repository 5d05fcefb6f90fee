"""Gymnasium envs with a Tuple of agents (LBF, RWARE): `env.api=tuple`."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rookery import Trainer, load_config
from rookery.core.errors import ConfigError, EnvError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, ParallelAgents, TupleAgents, check_env, make_multi
from rookery.envs.tasks.games import Pairing
from rookery.testing.multi_env import MultiEnvContract


class Pair(gymnasium.Env):
    """The game of pairing, as such envs would put it. `shared`: one reward for both; `flags`: an end for each;
    `wrong`: what it does."""

    def __init__(self, shared=False, flags=False, wrong=""):
        self.game, self.shared, self.flags, self.wrong = Pairing(), shared, flags, wrong
        self.names = self.game.possible_agents
        self.observation_space = spaces.Tuple([self.game.observation_spaces[name] for name in self.names])
        self.action_space = spaces.Tuple([self.game.action_spaces[name] for name in self.names])

    def reset(self, *, seed=None, options=None):
        obs, _ = self.game.reset(seed)
        return tuple(obs.values()), {}

    def step(self, actions):
        assert isinstance(actions, tuple)
        obs, reward, terminated, truncated, _ = self.game.step(dict(zip(self.names, actions)))
        paid, over, cut = (list(part.values()) for part in (reward, terminated, truncated))
        if self.wrong == "rewards":
            paid = paid[:1]
        if self.wrong == "four":
            return tuple(obs.values()), paid, over[0], {}
        ends = (over, cut) if self.flags else (over[0], cut[0])
        return list(obs.values()), paid[0] if self.shared else paid, *ends, {"round": self.game.time}


if "tests/Pair-v0" not in gymnasium.registry:  # this module is imported by its own name, too
    gymnasium.register("tests/Pair-v0", Pair)


def seed_of(i, episode):
    return Streams(5).seed_of("train", 0, i, episode)


@pytest.mark.parametrize("kwargs", [{}, {"shared": True}, {"flags": True}])
def test_every_row_is_that_of_the_same_game_through_another_api(kwargs):
    one = ParallelAgents([Pairing() for _ in range(2)], seed_of)
    two = TupleAgents([Pair(**kwargs) for _ in range(2)], seed_of)
    assert two.agents == ("agent_0", "agent_1")
    rng, names = np.random.default_rng(0), dict(zip(one.agents, two.agents))
    one.reset()
    two.reset()
    for _ in range(23):
        action = {"left": rng.integers(2, size=2), "right": rng.integers(3, size=2)}
        a, b = one.step(action), two.step({names[agent]: rows for agent, rows in action.items()})
        for agent, other in names.items():
            x, y = a.agents[agent], b.agents[other]
            for field in ("obs", "reward", "terminated", "truncated", "valid"):
                np.testing.assert_array_equal(getattr(x, field), getattr(y, field))


class TestTupleAgents(MultiEnvContract):
    steps = 80

    def make(self):
        return TupleAgents([Pair() for _ in range(3)], seed_of)


@pytest.mark.parametrize(
    "env_id", ["tests/Pair-v0", "envs.multi.test_tuples:Pair", "envs.multi.test_tuples:tests/Pair-v0"]
)
def test_ids_of_gymnasium_and_classes(env_id):
    env = make_multi(EnvConfig(id=env_id, api="tuple"), count=2, purpose="train", streams=Streams(0))
    assert env.agents == ("agent_0", "agent_1")
    assert check_env(env_id, api="tuple").problems == []


def test_what_is_no_tuple_of_agents_is_refused():
    with pytest.raises(ConfigError, match=r"env.api=tuple: .* expected two Tuples with a part per agent"):
        make_multi(EnvConfig(id="CartPole-v1", api="tuple"), count=1, purpose="train", streams=Streams(0))


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("rewards", "a list as rewards, expected one for each of 2 agents"),
        ("four", "step returned a tuple of tuple, list, bool, dict"),
    ],
)
def test_answers_of_another_form_are_told(wrong, problem):
    env = TupleAgents([Pair(wrong=wrong)], seed_of)
    env.reset()
    with pytest.raises(EnvError, match=problem):
        env.step({"agent_0": np.zeros(1, np.int64), "agent_1": np.zeros(1, np.int64)})


def test_a_reward_per_agent_in_an_ordinary_run_is_told_how_to_be_understood():
    config = load_config(algo="ppo", env="tests/Pair-v0", overrides=["learning.mode=eager", "train.max_steps=2000"])
    with Trainer(config) as trainer, pytest.raises(EnvError, match=r"the reward is a list.* env\.api=tuple"):
        list(trainer)
