"""Wrappers of single envs, by name in a config: `env.train_wrappers=[{name: reward_clip}]`.

`stateless = True` says that a wrapper keeps nothing between steps, so an env inside it can still be restored from its snapshot.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from rookery.core.errors import ConfigError
from rookery.core.registry import load, lookup
from rookery.envs.boundary import number
from rookery.envs.config import WrapperConfig


class RewardClip(gymnasium.RewardWrapper):
    """Rewards limited to [low, high]. For training only: evaluation should report raw returns."""

    stateless = True

    def __init__(self, env: gymnasium.Env, low: float = -1.0, high: float = 1.0):
        super().__init__(env)
        if low >= high:
            raise ConfigError(f"reward_clip: low={low} must be smaller than high={high}")
        self.low, self.high = low, high

    def reward(self, reward: Any) -> float:
        value = number(reward)
        return value if value != value else min(max(value, self.low), self.high)  # NaN stays NaN, so that it is noticed


class RewardScale(gymnasium.RewardWrapper):
    """Rewards times a factor. For training only."""

    stateless = True

    def __init__(self, env: gymnasium.Env, factor: float):
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return number(reward) * self.factor


def wrap(env: gymnasium.Env, chosen: tuple[str | WrapperConfig, ...]) -> gymnasium.Env:
    """Put the chosen wrappers around the env, the first innermost."""
    for choice in chosen:
        name, kwargs = (choice, {}) if isinstance(choice, str) else (choice.name, choice.kwargs)
        wrapper = load(name) if ":" in name else lookup("wrapper", name)
        try:
            env = wrapper(env, **kwargs)
        except TypeError as error:
            raise ConfigError(f"the wrapper {name!r} cannot be built with {kwargs}: {error}") from error
    return env
