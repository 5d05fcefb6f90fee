"""A curriculum calls a method of every env when a metric passes thresholds, and a resumed run repeats it exactly."""

from __future__ import annotations

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rookery import Curriculum, Trainer, UsageError, load_config
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, make, make_multi

TREE = {
    "algo": {"name": "dqn", "target_every": 20},
    "env": {"num": 2},
    "model": {"hidden": [8]},
    "store": {"capacity": 500, "min_fill": 50, "batch_size": 16},
    "train": {"max_steps": 300},
    "eval": {"every_steps": 0, "at_end": False},
    "log": {"every_steps": 40, "window": 10},
    "learning": {"mode": "eager"},
}


class Steeper(gymnasium.Env):
    """A walk of 7 steps with reward 1; the phase changes how it goes, from the moment it is set."""

    metadata = {"render_modes": []}

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(-99, 99, (2,), np.float32), spaces.Discrete(2)
        self.phase, self.told = -1, []

    def set_phase(self, phase):
        self.phase = phase
        self.told.append(phase)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.time = float(self.np_random.normal()) + self.phase, 0
        return self.look(), {}

    def step(self, action):
        self.x += (1 + self.phase) * float(self.np_random.normal()) + action
        self.time += 1
        return self.look(), 1.0, False, self.time == 7, {}

    def look(self):
        return np.array([self.x, self.time], np.float32)


def trainer(curriculum, **more):
    return Trainer(load_config(tree={**TREE, **more}), env=Steeper, callbacks=[curriculum])


def test_every_threshold_is_one_phase_and_each_report_gives_at_most_one():
    """Returns are 7 in every episode, so 3, 5 and 7 are passed in the first three reports
    (40, 80, 120), and 8 never."""
    curriculum = Curriculum(thresholds=[3, 5, 7, 8])
    run = trainer(curriculum)
    phases = [(progress.steps, curriculum.phase) for progress in run]
    assert phases[:4] == [(40, 1), (80, 2), (120, 3), (160, 3)]
    assert run.foreach_env("told") == [[0, 1, 2, 3]] * 2


def test_a_metric_that_is_missing_changes_nothing():
    curriculum = Curriculum(metric="eval/success_mean", thresholds=[0.0])
    run = trainer(curriculum)
    for _ in run:
        pass
    assert curriculum.phase == 0
    assert run.foreach_env("told") == [[0], [0]]


def test_a_resumed_run_is_exact_though_the_phase_changed_in_the_middle_of_an_episode():
    straight = trainer(Curriculum(thresholds=[3, 5, 7]))
    for _ in straight:
        pass
    first = trainer(Curriculum(thresholds=[3, 5, 7]))
    for progress in first:
        if progress.steps == 80:  # 40 steps per env: five episodes and five steps; phase 2 was set in the sixth
            break
    first.round()
    saved = copy.deepcopy(first.state())
    again = Curriculum(thresholds=[3, 5, 7])
    second = trainer(again)
    second.restore(saved)
    assert again.phase == 2
    assert second.foreach_env("phase") == [2, 2]
    for _ in second:
        pass
    assert second.exact() is True
    assert second.learner.weights_sha256() == straight.learner.weights_sha256()
    assert second.foreach_env("phase") == [3, 3]


def test_thresholds_are_needed():
    with pytest.raises(UsageError, match=r"needs thresholds of episode/return_mean"):
        Curriculum()
    with pytest.raises(UsageError, match="finite"):
        Curriculum(thresholds=[1.0, float("nan")])


def envs(**config):
    env = make(EnvConfig(**config), count=2, purpose="train", streams=Streams(0), factory=Steeper)
    env.reset()
    return env


def test_an_env_is_told_before_its_reset_what_held_then_and_later_what_came_later():
    env = envs()
    env.call("set_phase", 5)
    for _ in range(9):  # the second episode begins in phase 5
        env.step(np.zeros(2, np.int64))
    env.call("set_phase", np.int64(6))
    env.step(np.zeros(2, np.int64))
    again = envs()
    again.restore(copy.deepcopy(env.state()))
    assert again.call("told") == [[5, 6]] * 2
    assert again.exactness == "exact"
    for _ in range(8):
        assert np.array_equal(env.step(np.ones(2, np.int64)).obs, again.step(np.ones(2, np.int64)).obs)


def test_what_cannot_be_saved_makes_the_run_approximate_and_attributes_do_not(caplog):
    env = envs()
    env.call("told")
    env.call("look")
    assert env.exactness == "exact"
    env.call("set_phase", np.zeros(2))
    assert "set_phase" in env.exactness


def test_an_env_whose_episode_was_not_saved_begins_the_next_in_the_phase_it_was_left_in():
    env = envs()
    env.call("set_phase", 5)
    env.step(np.zeros(2, np.int64))
    env.call("set_phase", 6)
    saved = copy.deepcopy(env.state())
    for one in saved["envs"].values():
        del one["actions"]  # as after an episode that was too long
    again = envs()
    again.restore(saved)
    assert again.call("phase") == [6, 6]
    assert (np.abs(again.obs[:, 0] - 6) < 5).all()  # x begins at the phase, with a deviation of 1


class Duel:
    """Two agents in turn, five moves each; the phase is in what they see and earn, from the moment it is set."""

    possible_agents = ["one", "two"]

    def __init__(self):
        self.observation_spaces = {agent: spaces.Box(-99, 99, (2,), np.float32) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}
        self.phase, self.told = -1, []

    def set_phase(self, phase):
        self.phase = phase
        self.told.append(phase)

    def reset(self, seed=None):
        self.random, self.time = np.random.default_rng(seed), 0
        self.x = float(self.random.normal()) + self.phase
        return self.look(), {}

    def step(self, actions):
        self.x += (1 + self.phase) * float(self.random.normal()) + sum(actions.values())
        self.time += 1
        return self.look(), dict.fromkeys(actions, 1.0), {"__all__": False}, {"__all__": self.time == 10}, {}

    def look(self):
        return {self.possible_agents[self.time % 2]: np.array([self.x, self.time], np.float32)}


def duel(curriculum):
    tree = {**TREE, "env": {"num": 2, "api": "dict"}, "players": {"both": {}}}
    return Trainer(load_config(tree=tree), env=Duel, callbacks=[curriculum])


def test_envs_with_several_agents_are_told_again_when_a_run_is_resumed():
    straight = duel(Curriculum(thresholds=[3, 5, 7]))
    for _ in straight:
        pass
    first = duel(Curriculum(thresholds=[3, 5, 7]))
    for progress in first:
        if progress.steps == 120:  # the phase is set in the middle of the episodes
            break
    first.round()
    saved = copy.deepcopy(first.state())
    second = duel(Curriculum(thresholds=[3, 5, 7]))
    second.restore(saved)
    assert second.foreach_env("phase") == first.foreach_env("phase") == [3, 3]
    for _ in second:
        pass
    assert second.exact() is True
    assert second.learner.weights_sha256() == straight.learner.weights_sha256()


def several():
    env = make_multi(EnvConfig(api="dict"), count=1, purpose="train", streams=Streams(0), factory=Duel)
    env.reset()
    return env


def whoever_acts(env):
    return env.step({agent: np.zeros(1, np.int64) for agent, acting in env.acting.items() if acting[0]})


def test_a_call_that_cannot_be_saved_makes_a_run_with_several_agents_approximate():
    env = several()
    env.call("told")
    env.call("look")
    assert env.exactness == "exact"
    env.call("set_phase", np.zeros(2))
    assert "set_phase" in env.exactness


def test_several_agents_whose_episode_was_not_saved_begin_the_next_in_the_phase_they_were_left_in():
    env = several()
    env.call("set_phase", 5)
    whoever_acts(env)
    env.call("set_phase", 6)
    saved = copy.deepcopy(env.state())
    del saved["envs"]["0"]["actions"]
    again = several()
    again.restore(saved)
    assert again.call("phase") == [6]
    assert abs(again.obs["one"][0, 0] - 6) < 5
