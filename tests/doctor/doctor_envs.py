"""Envs whose steps take a known time, for the doctor; named by id, since worker processes import them."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Sleeps(gymnasium.Env):
    """A step waits 10 ms, as for a simulator elsewhere. Ends after ten steps."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.left = 10
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.spend()
        self.left -= 1
        return np.zeros(3, np.float32), 1.0, self.left == 0, False, {}

    def spend(self) -> None:
        time.sleep(0.01)


class Computes(Sleeps):
    """A step takes 5 ms of CPU time."""

    def spend(self) -> None:
        until = time.thread_time() + 0.005
        while time.thread_time() < until:
            pass


class Plain(Sleeps):
    """A step takes no time."""

    def spend(self) -> None:
        pass
