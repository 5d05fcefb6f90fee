"""Envs for `bench/house.py`: one that now and then gives NaN, as simulators do, and CartPole behind dicts by
agent. They need nothing of either tree."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv


class Failing(gymnasium.Env):
    """A walk of at most 40 steps; one step in a hundred has no finite reward."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-10, 10, (3,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.normal(size=3).astype(np.float32)
        return self.x.copy(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        noise = 0.1 * self.np_random.normal(size=3)
        self.x = np.clip(0.9 * self.x + 0.3 * (2 * action - 1) + noise, -10, 10).astype(np.float32)
        reward = float("nan") if self.np_random.random() < 0.01 else float(-np.square(self.x).sum())
        return self.x.copy(), reward, bool(self.np_random.random() < 0.02), self.t >= 40, {}


class DictCartPole:
    """CartPole, whose only agent is called by its name."""

    def __init__(self) -> None:
        self.env = CartPoleEnv()
        self.observation_spaces = {"cart": self.env.observation_space}
        self.action_spaces = {"cart": self.env.action_space}

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        obs, info = self.env.reset(seed=seed)
        return {"cart": obs}, {"cart": info}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        obs, reward, terminated, truncated, info = self.env.step(actions["cart"])
        ended = {"cart": terminated, "__all__": terminated}
        return {"cart": obs}, {"cart": reward}, ended, {"cart": truncated, "__all__": truncated}, {"cart": info}

    def close(self) -> None:
        self.env.close()
