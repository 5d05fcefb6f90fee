"""Envs that append every real step to a file, so that a test can see what was collected twice."""

from __future__ import annotations

import os

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.envs.tasks.goals import BitFlip


def note(index, seed, t):
    if path := os.environ.get("COUNTING_FILE"):
        with open(path, "a") as file:
            file.write(f"{index} {seed} {t}\n")


class CountingBits(BitFlip):
    """BitFlip that writes its steps, too."""

    def __init__(self, index: int = 0):
        super().__init__(6)
        self.index = index

    def reset(self, *, seed=None, options=None):
        self.seed, self.t = seed, 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.t += 1
        note(self.index, self.seed, self.t)
        return super().step(action)


class Counting(gymnasium.Env):
    """A noisy walk; each step writes `index seed step` to $COUNTING_FILE."""

    def __init__(self, continuous: bool = False, index: int = 0):
        self.observation_space = spaces.Box(-10, 10, (3,), np.float32)
        self.action_space = spaces.Box(-2, 2, (1,), np.float32) if continuous else spaces.Discrete(2)
        self.continuous, self.index, self.seed = continuous, index, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.t = seed, 0
        self.x = self.np_random.normal(size=3).astype(np.float32)
        return self.x.copy(), {}

    def step(self, action):
        self.t += 1
        push = float(action[0]) if self.continuous else 2.0 * action - 1.0
        self.x = np.clip(0.9 * self.x + 0.3 * push + 0.1 * self.np_random.normal(size=3), -10, 10).astype(np.float32)
        note(self.index, self.seed, self.t)
        terminated = bool(self.np_random.random() < 0.02)
        return self.x.copy(), float(-np.square(self.x).sum()), terminated, False, {}


gymnasium.register("Counting-v0", entry_point=Counting, max_episode_steps=60)
gymnasium.register(
    "CountingContinuous-v0", entry_point=lambda **kw: Counting(continuous=True, **kw), max_episode_steps=60
)
gymnasium.register("CountingBits-v0", entry_point=CountingBits)
