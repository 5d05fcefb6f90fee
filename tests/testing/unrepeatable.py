"""An env whose rewards depend on the clock, so that no run of it can be repeated."""

import time

import gymnasium
import numpy as np


class Unrepeatable(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1, np.float32), float(time.time_ns() % 1000), False, self.time >= 10, {}


gymnasium.register("Unrepeatable-v0", Unrepeatable)
