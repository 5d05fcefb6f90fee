"""Wrappers of single envs, by name in a config: `env.train_wrappers=[{name: reward_clip}]`.

The built-in ones put a layer (`wrapper_layers`) around the one agent of a gymnasium env. `stateless = True` says that a
wrapper keeps nothing between steps, so an env inside it can still be restored from its snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from rookery.core.errors import ERRORS, ConfigError, EnvError, RookeryError
from rookery.core.registry import load, lookup
from rookery.envs.config import WrapperConfig
from rookery.envs.faults import place
from rookery.envs.wrapper_layers import (
    ClippedReward,
    Inside,
    Layer,
    PreviousDecision,
    RescaledAction,
    ScaledReward,
    TimeLeft,
)

LIMITS = ("time_limit", "max_episode_steps", "_max_episode_steps", "max_steps", "max_cycles", "horizon")  # usual names


class Layered(gymnasium.Wrapper):
    """A gymnasium env in a layer; keyword arguments are those of the layer."""

    kind: type[Layer] = Layer

    def __init__(self, env: gymnasium.Env, **kwargs: Any):
        super().__init__(env)
        self.layer = self.kind(Inside(env.observation_space, env.action_space, time_limit(env)), **kwargs)
        self.observation_space, self.action_space = self.layer.obs_space, self.layer.action_space

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        self.layer.begin()
        return self.layer.see(obs), info

    def step(self, action: Any) -> Any:
        layer = self.layer
        layer.tick()
        obs, reward, *rest = self.env.step(layer.act(action))
        reward = layer.pay(reward)
        return layer.see(obs), reward, *rest


class _OnRewards(Layered):
    """A function of rewards alone. Rewards that a goal env computes in hindsight go through it too."""

    stateless = True

    @property
    def compute_reward(self) -> Callable[[Any, Any, Any], np.ndarray]:
        """That of the env inside, which is an AttributeError if it has none."""
        inner, layer = self.env.get_wrapper_attr("compute_reward"), self.layer
        assert isinstance(layer, ClippedReward | ScaledReward)
        return lambda achieved, desired, info: layer.rewards(np.asarray(inner(achieved, desired, info)))


class RewardClip(_OnRewards):
    """For training only: evaluation should report raw returns."""

    kind = ClippedReward


class RewardScale(_OnRewards):
    """For training only."""

    kind = ScaledReward


class ActionRescale(Layered):
    """Actions of one scale, whatever the env's bounds."""

    kind, stateless = RescaledAction, True


class PreviousStep(Layered):
    """With one agent nothing is kept between steps."""

    kind, stateless = PreviousDecision, True


class TimeAwareness(Layered):
    """It counts the steps of an episode."""

    kind = TimeLeft
    layer: TimeLeft

    def snapshot(self) -> dict[str, Any]:
        return {"elapsed": self.layer.elapsed}

    def restore_snapshot(self, state: dict[str, Any]) -> None:
        self.layer.elapsed = int(state["elapsed"])


def time_limit(env: gymnasium.Env) -> int | None:
    """Steps after which the env is truncated, as its wrappers or its registration say."""
    limit = next((layer._max_episode_steps for layer in layers(env) if isinstance(layer, TimeLimit)), None)
    return limit if limit is not None or env.spec is None else env.spec.max_episode_steps


def has_limit(env: gymnasium.Env) -> bool:
    """Whether anything is known that ends an episode: a limit as above, or one that the env itself names."""
    named_limits = (getattr(layer, name, None) for layer in layers(env) for name in LIMITS)
    return time_limit(env) is not None or any(isinstance(limit, int) and limit > 0 for limit in named_limits)


def layers(env: Any) -> Iterator[Any]:
    """The wrappers of an env, outermost first, and the env."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def named(choice: str | WrapperConfig) -> tuple[str, Any, dict[str, Any]]:
    """(name, class or function, keyword arguments) of a wrapper in a config."""
    name, kwargs = (choice, {}) if isinstance(choice, str) else (choice.name, choice.kwargs)
    return name, load(name) if ":" in name else lookup("wrapper", name), kwargs


def wrap(env: Any, chosen: tuple[str | WrapperConfig, ...]) -> Any:
    """Put the chosen wrappers around the env, the first innermost."""
    for choice in chosen:
        name, wrapper, kwargs = named(choice)
        try:
            env = wrapper(env, **kwargs)
        except RookeryError:
            raise
        except (TypeError, ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise ConfigError(f"the wrapper {name!r} cannot be built with {kwargs}: {error}") from error
        except ERRORS as error:
            what = f"{type(error).__name__}: {error}{place(error)}"
            raise EnvError(f"making the wrapper {name!r} with {kwargs} failed: {what}") from error
    return env
