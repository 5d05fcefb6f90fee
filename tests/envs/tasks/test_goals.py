"""BitFlip and Reach: rewards by hand, ends, and functions of many goals at once."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from rookery.core.errors import ConfigError
from rookery.envs.tasks import goals
from rookery.envs.tasks.goals import BitFlip, Reach

goals.register()


def test_flipping_every_wrong_bit_succeeds_and_ends_the_episode():
    env = gymnasium.make("rookery/BitFlip-v0", disable_env_checker=True)
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        wrong = np.flatnonzero(obs["achieved_goal"] != obs["desired_goal"])
        assert len(wrong) > 0  # an episode never starts at its goal
        steps = [env.step(int(bit)) for bit in wrong]
        assert [step[1] for step in steps] == [-1.0] * (len(wrong) - 1) + [0.0]
        assert [step[2] for step in steps] == [False] * (len(wrong) - 1) + [True]
        assert not any(step[3] for step in steps)
        assert [step[4]["is_success"] for step in steps] == [step[2] for step in steps]


def test_n_steps_without_success_truncate():
    env = BitFlip(6)
    obs, _ = env.reset(seed=2)
    same = obs["achieved_goal"] == obs["desired_goal"]
    assert same.any()
    bit = int(np.argmax(same))  # a bit that is right is flipped to and fro
    ends = [env.step(bit)[2:4] for _ in range(6)]
    assert ends == [(False, False)] * 5 + [(False, True)]


def test_observations_are_copies():
    env = BitFlip(4)
    obs, _ = env.reset(seed=0)
    before = obs["observation"].copy()
    env.step(0)
    assert np.array_equal(obs["observation"], before)


def test_rewards_of_many_goals_are_computed_at_once():
    env, zeros, mixed = BitFlip(2), np.zeros((3, 2)), np.array([[0, 0], [0, 1], [1, 1]])
    assert env.compute_reward(zeros, mixed, [{}] * 3).tolist() == [0.0, -1.0, -1.0]
    assert env.compute_terminated(zeros, mixed, [{}] * 3).tolist() == [True, False, False]
    point, places = np.zeros((3, 2)), np.array([[0.06, 0.08], [0.08, 0.08], [0.0, 0.0]])  # distances 0.1, 0.113, 0
    assert Reach(tolerance=0.1000001).compute_reward(point, places, [{}] * 3).tolist() == [0.0, -1.0, 0.0]


def test_a_point_moves_by_speed_per_step_and_stays_in_its_square():
    env = Reach(speed=0.5)
    obs, _ = env.reset(seed=3)
    moved = env.step(np.array([1.0, -0.5], np.float32))[0]["achieved_goal"]
    assert np.allclose(moved, np.clip(obs["achieved_goal"] + [0.5, -0.25], -1, 1), atol=1e-6)
    for _ in range(10):
        obs = env.step(np.ones(2, np.float32))[0]
    assert obs["achieved_goal"].tolist() == [1.0, 1.0]


def test_reaching_is_a_success_but_no_end():
    env = Reach()
    obs, _ = env.reset(seed=0)
    for _ in range(20):
        obs, reward, terminated, _, info = env.step(np.clip((obs["desired_goal"] - obs["achieved_goal"]) / 0.2, -1, 1))
        assert not terminated
    assert (reward, info["is_success"]) == (0.0, True)


def test_no_bits_are_no_task():
    with pytest.raises(ConfigError, match="n=0 bits"):
        BitFlip(0)
