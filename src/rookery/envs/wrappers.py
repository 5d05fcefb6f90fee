"""Wrappers of single envs, by name in a config: `env.train_wrappers=[{name: reward_clip}]`.

`stateless = True` says that a wrapper keeps nothing between steps, so an env inside it can still be restored from its snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.core.registry import load, lookup
from rookery.envs.boundary import number
from rookery.envs.config import WrapperConfig


class _OnRewards(gymnasium.RewardWrapper):
    """A function of rewards alone. Rewards that a goal env computes in hindsight go through it too."""

    stateless = True

    def rewards(self, values: np.ndarray) -> np.ndarray:
        """The function `reward` for arrays; numpy would be slow for the single reward of a step."""
        raise TypeError(f"{type(self).__name__} defines no rewards()")

    @property
    def compute_reward(self) -> Callable[[Any, Any, Any], np.ndarray]:
        """That of the env inside, which is an AttributeError if it has none."""
        inner = self.env.get_wrapper_attr("compute_reward")
        return lambda achieved, desired, info: self.rewards(np.asarray(inner(achieved, desired, info)))


class RewardClip(_OnRewards):
    """Rewards limited to [low, high], or with sign=true −1, 0 or 1. For training only: evaluation should report raw returns."""

    def __init__(self, env: gymnasium.Env, low: float = -1.0, high: float = 1.0, sign: bool = False):
        super().__init__(env)
        if low >= high:
            raise ConfigError(f"reward_clip: low={low} must be smaller than high={high}")
        self.low, self.high, self.sign = low, high, sign

    def reward(self, reward: Any) -> float:
        value = number(reward)
        if value != value:
            return value  # NaN stays NaN, so that it is noticed
        return float((value > 0) - (value < 0)) if self.sign else min(max(value, self.low), self.high)

    def rewards(self, values: np.ndarray) -> np.ndarray:
        return np.sign(values) if self.sign else np.clip(values, self.low, self.high)


class RewardScale(_OnRewards):
    """Rewards times a factor. For training only."""

    def __init__(self, env: gymnasium.Env, factor: float):
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return number(reward) * self.factor

    def rewards(self, values: np.ndarray) -> np.ndarray:
        return values * self.factor


class ActionRescale(gymnasium.wrappers.RescaleAction):
    """Box actions in [low, high], stretched to the bounds of the env inside."""

    stateless = True

    def __init__(self, env: gymnasium.Env, low: float = -1.0, high: float = 1.0):
        space = env.action_space
        finite = isinstance(space, spaces.Box) and np.isfinite(space.low).all() and np.isfinite(space.high).all()
        if not finite or low >= high:
            raise ConfigError(
                f"action_rescale maps [{low}, {high}] to the bounds of a Box with finite bounds; the action space is {space}. "
                "Leave it out, or give the env's actions bounds."
            )
        as_bound = np.dtype(space.dtype).type
        super().__init__(env, as_bound(low), as_bound(high))


class TimeAwareness(gymnasium.Wrapper):
    """The share of the time limit that is left, 1 … 0, at the end of a vector or as `time_left` in a Dict observation."""

    def __init__(self, env: gymnasium.Env, limit: int | None = None):
        super().__init__(env)
        self.limit: int = limit or _time_limit(env) or 0
        if self.limit < 1:
            raise ConfigError(
                "time_awareness: the env has no time limit. Set env.max_episode_steps, or give the wrapper its `limit` in steps."
            )
        self._elapsed = 0
        space, share = env.observation_space, spaces.Box(0.0, 1.0, (1,), np.float32)
        if isinstance(space, spaces.Dict):
            self.observation_space = _with_parts(space, {"time_left": share}, "time_awareness")
        elif isinstance(space, spaces.Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating):
            low, high = (np.append(space.low, 0.0), np.append(space.high, 1.0))
            self.observation_space = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        else:
            raise ConfigError(
                f"time_awareness needs a vector of floats or a Dict observation, got {space}. Put it into a Dict with a wrapper."
            )

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        self._elapsed = 0
        return self._seen(obs), info

    def step(self, action: Any) -> Any:
        obs, *rest = self.env.step(action)
        self._elapsed += 1
        return self._seen(obs), *rest

    def _seen(self, obs: Any) -> Any:
        left = np.array([max(0.0, 1.0 - self._elapsed / self.limit)], np.float32)
        return {**obs, "time_left": left} if isinstance(obs, dict) else np.concatenate([obs, left]).astype(np.float32)

    def snapshot(self) -> dict[str, Any]:
        return {"elapsed": self._elapsed}

    def restore_snapshot(self, state: dict[str, Any]) -> None:
        self._elapsed = int(state["elapsed"])


class PreviousStep(gymnasium.Wrapper):
    """The action before (one-hot where it is discrete) and its reward, beside the observation; zeros after a reset.

    A Dict observation keeps its keys; any other becomes the entry `obs`. Nothing is kept between steps.
    """

    stateless = True

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        inner = env.observation_space
        space = inner if isinstance(inner, spaces.Dict) else spaces.Dict({"obs": inner})
        self._plain = not isinstance(inner, spaces.Dict)
        self._width = spaces.flatdim(env.action_space)
        flat = spaces.flatten_space(env.action_space)
        assert isinstance(flat, spaces.Box), "spaces of fixed size, and we know no others, are flattened to a Box"
        bounds = (flat.low.astype(np.float32), flat.high.astype(np.float32))
        unbounded = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        parts: dict[str, spaces.Space] = {
            "previous_action": spaces.Box(*bounds, dtype=np.float32),
            "previous_reward": unbounded,
        }
        self.observation_space = _with_parts(space, parts, "previous_step")

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        return self._seen(obs, np.zeros(self._width, np.float32), 0.0), info

    def step(self, action: Any) -> Any:
        obs, reward, *rest = self.env.step(action)
        flat = np.asarray(spaces.flatten(self.env.action_space, action), np.float32)
        return self._seen(obs, flat, number(reward)), reward, *rest

    def _seen(self, obs: Any, action: np.ndarray, reward: float) -> dict[str, Any]:
        parts = {"previous_action": action, "previous_reward": np.array([reward], np.float32)}
        return ({"obs": obs} if self._plain else dict(obs)) | parts


def _with_parts(space: spaces.Dict, parts: dict[str, spaces.Space], name: str) -> spaces.Dict:
    """The Dict space with further entries, which must be new."""
    if taken := [key for key in parts if key in space.spaces]:
        raise ConfigError(f"{name}: the observation already has an entry {taken[0]!r}. Rename it, or leave {name} out.")
    return spaces.Dict({**space.spaces, **parts})


def _time_limit(env: gymnasium.Env) -> int | None:
    """Steps after which the env is truncated, as its wrappers or its registration say."""
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.wrappers.TimeLimit):
            return layer._max_episode_steps
        layer = layer.env
    return None if env.spec is None else env.spec.max_episode_steps


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
