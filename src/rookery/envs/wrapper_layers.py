"""Layers: what the built-in wrappers change for one agent. `wrappers` puts them around gymnasium envs,
`multi.wrapped` around every agent of an env with several.

In a step a layer hears, in this order: `tick`, the agent's action (`act`), its reward (`pay`), what it sees then
(`see`). An agent that has no turn neither acts nor sees, but time goes on for it and it may be paid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers.utils import rescale_box

from rookery.core.errors import ConfigError
from rookery.envs.boundary import number


@dataclass(frozen=True, slots=True)
class Inside:
    """What a layer is put around: one agent's spaces, and the steps after which its episodes are cut."""

    obs_space: spaces.Space
    action_space: spaces.Space
    limit: int | None = None


class Layer:
    """As it stands, nothing is changed."""

    def __init__(self, inside: Inside):
        self.obs_space, self.action_space = inside.obs_space, inside.action_space

    def begin(self) -> None:
        """An episode begins."""

    def tick(self) -> None:
        """The env makes a step."""

    def act(self, action: Any) -> Any:
        """The action that the env inside gets."""
        return action

    def pay(self, reward: Any) -> Any:
        return reward

    def see(self, obs: Any) -> Any:
        return obs

    def rewards(self, values: np.ndarray) -> np.ndarray:
        """`pay` for arrays: rewards that a goal env computes in hindsight go through it, too."""
        return values


class ClippedReward(Layer):
    """Rewards limited to [low, high], or with sign=true −1, 0 or 1."""

    def __init__(self, inside: Inside, low: float = -1.0, high: float = 1.0, sign: bool = False):
        super().__init__(inside)
        if low >= high:
            raise ConfigError(f"reward_clip: low={low} must be smaller than high={high}")
        self.low, self.high, self.sign = low, high, sign

    def pay(self, reward: Any) -> float:
        value = number(reward)
        if value != value:
            return value  # NaN stays NaN, so that it is noticed
        return float((value > 0) - (value < 0)) if self.sign else min(max(value, self.low), self.high)

    def rewards(self, values: np.ndarray) -> np.ndarray:
        """The same for arrays; numpy would be slow for the single reward of a step."""
        return np.sign(values) if self.sign else np.clip(values, self.low, self.high)


class ScaledReward(Layer):
    """Rewards times a factor."""

    def __init__(self, inside: Inside, factor: float):
        super().__init__(inside)
        self.factor = factor

    def pay(self, reward: Any) -> float:
        return number(reward) * self.factor

    def rewards(self, values: np.ndarray) -> np.ndarray:
        return values * self.factor


class RescaledAction(Layer):
    """Box actions in [low, high], stretched to the bounds of the env inside."""

    def __init__(self, inside: Inside, low: float = -1.0, high: float = 1.0):
        super().__init__(inside)
        space = inside.action_space
        finite = isinstance(space, spaces.Box) and np.isfinite(space.low).all() and np.isfinite(space.high).all()
        if not finite or low >= high:
            raise ConfigError(
                f"action_rescale maps [{low}, {high}] to the bounds of a Box with finite bounds; "
                f"the action space is {space}. Leave it out, or give the env's actions bounds."
            )
        assert isinstance(space, spaces.Box)
        as_bound = np.dtype(space.dtype).type
        self.action_space, _, self._stretched = rescale_box(space, as_bound(low), as_bound(high))

    def act(self, action: Any) -> Any:
        return self._stretched(action)


class TimeLeft(Layer):
    """The share of the time limit that is left, 1 … 0,
    at the end of a vector or as `time_left` in a Dict observation.
    """

    def __init__(self, inside: Inside, limit: int | None = None):
        super().__init__(inside)
        self.limit: int = limit or inside.limit or 0
        if self.limit < 1:
            raise ConfigError(
                "time_awareness: the env has no time limit. "
                "Set env.max_episode_steps, or give the wrapper its `limit` in steps."
            )
        self.elapsed = 0
        space, share = inside.obs_space, spaces.Box(0.0, 1.0, (1,), np.float32)
        if isinstance(space, spaces.Dict):
            self.obs_space = _with_parts(space, {"time_left": share}, "time_awareness")
        elif isinstance(space, spaces.Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating):
            low, high = (np.append(space.low, 0.0), np.append(space.high, 1.0))
            self.obs_space = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        else:
            raise ConfigError(
                f"time_awareness needs a vector of floats or a Dict observation, got {space}. "
                "Put it into a Dict with a wrapper."
            )

    def begin(self) -> None:
        self.elapsed = 0

    def tick(self) -> None:
        self.elapsed += 1

    def see(self, obs: Any) -> Any:
        left = np.array([max(0.0, 1.0 - self.elapsed / self.limit)], np.float32)
        return {**obs, "time_left": left} if isinstance(obs, dict) else np.concatenate([obs, left]).astype(np.float32)


class PreviousDecision(Layer):
    """The agent's action before (one-hot where it is discrete) and all that it received since, beside the observation;
    zeros until it has acted.

    A Dict observation keeps its keys; any other becomes the entry `obs`.
    """

    def __init__(self, inside: Inside):
        super().__init__(inside)
        space = (
            inside.obs_space if isinstance(inside.obs_space, spaces.Dict) else spaces.Dict({"obs": inside.obs_space})
        )
        self._plain = not isinstance(inside.obs_space, spaces.Dict)
        flat = spaces.flatten_space(inside.action_space)
        assert isinstance(flat, spaces.Box), "spaces of fixed size, and we know no others, are flattened to a Box"
        bounds = (flat.low.astype(np.float32), flat.high.astype(np.float32))
        parts: dict[str, spaces.Space] = {
            "previous_action": spaces.Box(*bounds, dtype=np.float32),
            "previous_reward": spaces.Box(-np.inf, np.inf, (1,), np.float32),
        }
        self.obs_space = _with_parts(space, parts, "previous_step")
        self._width = spaces.flatdim(inside.action_space)
        self.begin()

    def begin(self) -> None:
        self._action, self._earned, self._acted = np.zeros(self._width, np.float32), 0.0, False

    def act(self, action: Any) -> Any:
        self._action = np.asarray(spaces.flatten(self.action_space, action), np.float32)
        self._earned, self._acted = -0.0, True  # −0 + x = x for every x, to the bit
        return action

    def pay(self, reward: Any) -> Any:
        if self._acted:
            self._earned += number(reward)
        return reward

    def see(self, obs: Any) -> dict[str, Any]:
        parts = {"previous_action": self._action, "previous_reward": np.array([self._earned], np.float32)}
        return ({"obs": obs} if self._plain else dict(obs)) | parts


def _with_parts(space: spaces.Dict, parts: dict[str, spaces.Space], name: str) -> spaces.Dict:
    """The Dict space with further entries, which must be new."""
    if taken := [key for key in parts if key in space.spaces]:
        raise ConfigError(f"{name}: the observation already has an entry {taken[0]!r}. Rename it, or leave {name} out.")
    return spaces.Dict({**space.spaces, **parts})
