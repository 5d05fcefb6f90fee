"""Partially observed tasks: what is hidden must be remembered.

`rookery/CartPoleNoVelocity-v0` is CartPole-v1 without its two velocities:
they can only be told from a series of observations.
It stands alone as each family of tasks does.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

NO_VELOCITY = "rookery/CartPoleNoVelocity-v0"


class NoVelocity(gymnasium.ObservationWrapper):
    """CartPole's observation without velocities: the positions of cart and pole, [2]."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        box = env.observation_space
        assert isinstance(box, spaces.Box)
        self.observation_space = spaces.Box(box.low[[0, 2]], box.high[[0, 2]], dtype=np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[[0, 2]]


def cartpole(**kwargs: Any) -> gymnasium.Env:
    return NoVelocity(CartPoleEnv(**kwargs))


def register() -> None:
    """Make the ids known to gymnasium; may be called again."""
    if NO_VELOCITY not in gymnasium.registry:
        gymnasium.register(NO_VELOCITY, "rookery.envs.tasks.no_velocity:cartpole", max_episode_steps=500)
