"""Goal envs: the observation is a Dict {observation, achieved_goal, desired_goal},
and the reward is a function of the two goals.

    BitFlip   n bits, an action flips one; reward 0 where the bits equal the goal, else −1; success ends the episode,
              n steps truncate it
    Reach     a point in the square [−1, 1]² is pushed by at most `speed` per step and axis; reward 0 within
              `tolerance` of the goal, else −1; only the time limit of the id ends an episode

`compute_reward` and `compute_terminated` take goals [..., n] with any leading dimensions. `info["is_success"]` says
whether the goal is reached now. Ids: `rookery/BitFlip-v0` (8 bits), `rookery/Reach-v0` (25 steps).
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.core.errors import ConfigError

Result = tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]


class GoalEnv(gymnasium.Env):
    """Common manners: the state is what has been achieved."""

    metadata = {"render_modes": []}

    def __init__(self, low: float, high: float, size: int):
        box = spaces.Box(low, high, (size,), np.float32)
        self.observation_space = spaces.Dict({"observation": box, "achieved_goal": box, "desired_goal": box})
        self._state, self._goal = np.zeros(size, np.float32), np.zeros(size, np.float32)

    def reached(self, achieved: Any, desired: Any) -> np.ndarray:
        """Whether achieved goals are good enough, one answer per row."""
        raise TypeError(f"{type(self).__name__} defines no reached()")

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> np.ndarray:
        """0 where the goal is reached, −1 elsewhere."""
        return self.reached(achieved, desired).astype(np.float32) - 1.0

    def look(self) -> dict[str, np.ndarray]:
        return {
            "observation": self._state.copy(),
            "achieved_goal": self._state.copy(),
            "desired_goal": self._goal.copy(),
        }

    def judged(self, truncated: bool, ends: bool) -> Result:
        """What a step gives; success terminates if it `ends` the episode."""
        success = bool(self.reached(self._state, self._goal))
        reward = float(self.compute_reward(self._state, self._goal, {}))
        terminated = success and ends
        return self.look(), reward, terminated, truncated and not terminated, {"is_success": success}


class BitFlip(GoalEnv):
    """Reach a random pattern of n bits by flipping one bit per step."""

    def __init__(self, n: int = 8):
        if n < 1:
            raise ConfigError(f"BitFlip has n={n} bits, expected at least 1")
        super().__init__(0.0, 1.0, n)
        self.n, self._steps = n, 0
        self.time_limit = n
        self.action_space = spaces.Discrete(n)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        self._goal = self.np_random.integers(0, 2, self.n).astype(np.float32)
        self._state = self._goal
        while np.array_equal(self._state, self._goal):
            self._state = self.np_random.integers(0, 2, self.n).astype(np.float32)
        return self.look(), {}

    def step(self, action: Any) -> Result:
        self._state[int(action)] = 1.0 - self._state[int(action)]
        self._steps += 1
        return self.judged(self._steps >= self.time_limit, True)

    def reached(self, achieved: Any, desired: Any) -> np.ndarray:
        return np.all(np.asarray(achieved) == np.asarray(desired), axis=-1)

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> np.ndarray:
        """Success ends the episode."""
        return self.reached(achieved, desired)


class Reach(GoalEnv):
    """Push a point to a random place and keep it there."""

    def __init__(self, speed: float = 0.2, tolerance: float = 0.1):
        super().__init__(-1.0, 1.0, 2)
        self.speed, self.tolerance = speed, tolerance
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._goal = self.np_random.uniform(-1.0, 1.0, (2, 2)).astype(np.float32)
        return self.look(), {}

    def step(self, action: Any) -> Result:
        moved = self._state + self.speed * np.asarray(action, np.float32)
        self._state = np.clip(moved, -1.0, 1.0).astype(np.float32)
        return self.judged(False, False)

    def reached(self, achieved: Any, desired: Any) -> np.ndarray:
        distance = np.linalg.norm(np.asarray(achieved) - np.asarray(desired), axis=-1)
        return np.asarray(distance <= self.tolerance)


def register() -> None:
    """Make the ids known to gymnasium; calling it again changes nothing."""
    if "rookery/BitFlip-v0" not in gymnasium.registry:
        gymnasium.register("rookery/BitFlip-v0", "rookery.envs.tasks.goals:BitFlip")
        gymnasium.register("rookery/Reach-v0", "rookery.envs.tasks.goals:Reach", max_episode_steps=25)
