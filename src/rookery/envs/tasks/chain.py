"""Deep exploration: a reward that hardly any sequence of random actions meets.

    Chain   `length` places in a row, two actions: the right one leads on, the wrong one back to the start. Which is the
            right one differs from place to place. Reward 1 and the end behind the last place, 0 before; twice `length`
            steps truncate

Random actions arrive in about one episode of 100 000 with 20 places, and nothing on the way tells that it is the right
way. The observation is the place, one-hot; `info["is_success"]` says whether the end was reached. Id:
`rookery/Chain-v0` (20 places).
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.core.errors import ConfigError

Result = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


class Chain(gymnasium.Env):
    """Find the one long sequence of actions that is rewarded."""

    metadata = {"render_modes": []}

    def __init__(self, length: int = 20, pattern: int = 0):
        if length < 1:
            raise ConfigError(f"Chain has length={length} places, expected at least 1")
        self.length, self._place, self._steps = length, 0, 0
        self.time_limit = 2 * length
        rng = np.random.Generator(np.random.PCG64(pattern))  # the task itself, the same in every env and every run
        self.right = rng.integers(0, 2, length)  # the action that leads on, by place
        self.observation_space = spaces.Box(0.0, 1.0, (length + 1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Result:
        self._steps += 1
        self._place = self._place + 1 if int(action) == self.right[self._place] else 0
        arrived = self._place == self.length
        truncated = self._steps >= self.time_limit and not arrived
        return self._seen(), float(arrived), arrived, truncated, {"is_success": arrived}

    def _seen(self) -> np.ndarray:
        obs = np.zeros(self.length + 1, np.float32)
        obs[self._place] = 1.0
        return obs


def register() -> None:
    """Make the id known to gymnasium; calling it again changes nothing."""
    if "rookery/Chain-v0" not in gymnasium.registry:
        gymnasium.register("rookery/Chain-v0", "rookery.envs.tasks.chain:Chain")
