"""Envs that tell which process steps them, and one with pictures."""

from __future__ import annotations

import os

import gymnasium
import numpy as np
from gymnasium import spaces

from same.counting import Counting


class Telling(Counting):
    """The noisy walk; `pid()` is that of the process it lives in."""

    def pid(self):
        return os.getpid()


class Pictures(gymnasium.Env):
    """A dot that moves in a picture of bytes, beside its speed: a Dict of uint8 and float32."""

    observation_space = spaces.Dict(
        {"picture": spaces.Box(0, 255, (12, 12, 1), np.uint8), "speed": spaces.Box(-9, 9, (2,), np.float32)}
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.time = int(self.np_random.integers(12)), 0
        return self._seen(), {}

    def step(self, action):
        self.at, self.time = (self.at + int(action) - 1) % 12, self.time + 1
        return self._seen(), float(self.at == 5), self.np_random.random() < 0.05, self.time == 30, {}

    def _seen(self):
        picture = np.zeros((12, 12, 1), np.uint8)
        picture[self.at, self.time % 12] = 255
        return {"picture": picture, "speed": self.np_random.normal(size=2).clip(-9, 9).astype(np.float32)}

    def pid(self):
        return os.getpid()


gymnasium.register("Telling-v0", entry_point=Telling, max_episode_steps=40)
gymnasium.register(
    "TellingContinuous-v0", entry_point=lambda **kw: Telling(continuous=True, **kw), max_episode_steps=40
)
gymnasium.register("Pictures-v0", entry_point=Pictures)
