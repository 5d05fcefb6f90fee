"""Demonstrations reach the updates with the actions that the policy itself would have stored."""

import gymnasium as gym
import numpy as np
import pytest

import rookery


class Push(gym.Env):
    """One step per episode; actions between −2 and 2."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(action[0]), True, False, {}


class Choose(Push):
    """Choices 3 and 4."""

    action_space = gym.spaces.Discrete(2, start=3)

    def step(self, action):
        return np.zeros(1, np.float32), float(action), True, False, {}


def demonstrated(tmp_path, algo, env, action):
    """A batch of the run's store whose second half are demonstrations of one action."""
    replay = rookery.Replay(4)
    seen = {name: np.zeros(1, np.float32) for name in ("obs", "next_obs")}
    for _ in range(4):
        replay.add(action=action, reward=0.0, terminated=True, truncated=False, **seen)
    replay.save(tmp_path / "file")
    section = {
        "demonstrations": str(tmp_path / "file"),
        "demonstration_share": 0.5,
        "batch_size": 4,
        "min_fill": 4,
        "capacity": 100,
    }
    tree = {"algo": {"name": algo}, "store": section, "train": {"max_steps": 100}}
    config = rookery.load_config(tree=tree | {"learning": {"mode": "eager"}})
    trainer = rookery.Trainer(config, env=env)
    demonstrations = trainer.store._stores["demonstrations"]
    try:
        return demonstrations.sample()[0]["action"]
    finally:
        trainer.pool.close()


@pytest.mark.parametrize("algo", ["td3", "ddpg", "sac", "crossq", "redq", "tqc"])
def test_an_action_half_way_to_the_bound_is_learnt_from_as_one_half(tmp_path, algo):
    stored = demonstrated(tmp_path, algo, Push, np.array([1.0], np.float32))
    assert stored.tolist() == [[0.5], [0.5]]  # 1 of ±2


@pytest.mark.parametrize("algo", ["dqn", "sac-discrete"])
def test_a_choice_is_learnt_from_as_its_number_from_zero(tmp_path, algo):
    assert demonstrated(tmp_path, algo, Choose, 4).tolist() == [1, 1]
