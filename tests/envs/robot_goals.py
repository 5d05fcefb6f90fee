"""Goal envs that judge goals as gymnasium-robotics does: `compute_terminated` gives one bool, whatever comes."""

from __future__ import annotations

import numpy as np

from rookery.envs.tasks.goals import Reach


class Fetch(Reach):
    """The reward is a function of arrays; nothing ever terminates."""

    time_limit = 25

    def __init__(self):
        super().__init__()
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        self._steps = 0
        return super().reset(seed=seed)

    def step(self, action):
        self._steps += 1
        obs, reward, _, _, info = super().step(action)
        terminated = self.compute_terminated(obs["achieved_goal"], obs["desired_goal"], info)
        return obs, reward, terminated, self._steps >= self.time_limit, info

    def compute_terminated(self, achieved, desired, info):
        return False


class Maze(Fetch):
    """The end is a function of one pair of goals: for arrays it gives one bool, which is wrong for most rows."""

    def compute_terminated(self, achieved, desired, info):
        return bool(np.linalg.norm(achieved - desired) <= 0.5)


class OneByOne(Maze):
    """The reward, too: it fails on arrays."""

    def compute_reward(self, achieved, desired, info):
        return 0.0 if np.linalg.norm(achieved - desired) <= 0.5 and achieved[0] < 9.0 else -1.0


class MixesRows(Fetch):
    """The shape is right and the numbers are not: the first row's distance stands for all."""

    def compute_reward(self, achieved, desired, info):
        distance = np.linalg.norm(np.atleast_2d(achieved)[0] - np.atleast_2d(desired)[0])
        return np.full(len(np.atleast_2d(achieved)), -distance, np.float32)


class NeedsInfo(Fetch):
    """Infos are not stored, so that hindsight cannot give them."""

    def compute_reward(self, achieved, desired, info):
        return -1.0 if info["touched"] else 0.0

    def step(self, action):
        self._steps += 1
        return self.look(), -1.0, False, self._steps >= self.time_limit, {"touched": True}
