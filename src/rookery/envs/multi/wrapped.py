"""Built-in wrappers around an env with several agents: one layer (`envs.wrapper_layers`) per agent, whatever the API.

A reward is clipped or scaled as the env tells it: with `turns` once per turn of the agent, else once per step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.envs.config import WrapperConfig, Wrappers
from rookery.envs.multi.apis import ApiAdapter, Timestep
from rookery.envs.wrapper_layers import Inside, Layer
from rookery.envs.wrappers import Layered, named


class Wrapped(ApiAdapter):
    """An adapter whose agents act, earn and see through a layer each."""

    def __init__(self, inner: ApiAdapter, kind: type[Layer], kwargs: dict[str, Any]):
        self.inner, self.env, self.agents, self.limit = inner, inner.env, inner.agents, inner.limit
        self.comes_back = inner.comes_back
        self._layers: dict[str, Layer] = {}
        for agent in self.agents:
            try:
                self._layers[agent] = kind(Inside(*inner.spaces(agent), inner.limit), **kwargs)
            except ConfigError as error:
                raise ConfigError(f"{error} (agent {agent!r})") from error

    def spaces(self, agent: str) -> tuple[spaces.Space, spaces.Space]:
        return self._layers[agent].obs_space, self._layers[agent].action_space

    def reset(self, seed: int | None) -> Timestep:
        timestep = self.inner.reset(seed)
        for layer in self._layers.values():
            layer.begin()
        return self._through(timestep)

    def step(self, actions: dict[str, Any]) -> Timestep:
        for layer in self._layers.values():
            layer.tick()
        return self._through(
            self.inner.step({agent: self._layers[agent].act(action) for agent, action in actions.items()})
        )

    def last(self, agent: str) -> tuple[Any, float]:
        obs, reward = self.inner.last(agent)
        paid = self._layers[agent].pay(reward)
        return None if obs is None else self._layers[agent].see(obs), paid

    def method(self, name: str) -> Callable[..., Any] | None:
        inner, layer = self.inner.method(name), next(iter(self._layers.values()))
        if inner is None or name != "compute_reward":
            return inner
        return lambda achieved, desired, info: layer.rewards(np.asarray(inner(achieved, desired, info)))

    def _through(self, timestep: Timestep) -> Timestep:
        """Whoever is unknown here is told to nobody else: the table says so."""
        timestep.reward = {
            agent: self._layers[agent].pay(reward) if agent in self._layers else reward
            for agent, reward in timestep.reward.items()
        }
        timestep.obs = {
            agent: obs if obs is None or agent not in self._layers else self._layers[agent].see(obs)
            for agent, obs in timestep.obs.items()
        }
        return timestep


def in_layers(adapter: ApiAdapter, chosen: Wrappers) -> ApiAdapter:
    """The adapter in built-in wrappers, the first innermost."""
    for choice in chosen:
        name, wrapper, kwargs = named(choice)
        try:
            if wrapper is gymnasium.wrappers.TimeLimit:
                steps = _time_limit(**kwargs)
                adapter.limit = steps if adapter.limit is None else min(steps, adapter.limit)
            else:
                adapter = Wrapped(adapter, wrapper.kind, kwargs)
        except TypeError as error:
            raise ConfigError(f"the wrapper {name!r} cannot be built with {kwargs}: {error}") from error
    return adapter


def _time_limit(max_episode_steps: int) -> int:
    if not isinstance(max_episode_steps, int) or max_episode_steps < 1:
        raise TypeError(f"expected a number of steps from 1 on, got {max_episode_steps!r}")
    return max_episode_steps


def sorted_out(chosen: Wrappers, api: str) -> tuple[Wrappers, Wrappers]:
    """(wrappers of the env itself, built-in ones around its agents), or why they cannot be used together."""
    own: list[str | WrapperConfig] = []
    ours: list[str | WrapperConfig] = []
    for choice in chosen:
        name, wrapper, _ = named(choice)
        kind = wrapper if isinstance(wrapper, type) else object
        if issubclass(kind, Layered | gymnasium.wrappers.TimeLimit):
            ours.append(choice)
        elif issubclass(kind, gymnasium.Wrapper):
            raise ConfigError(
                f"the wrapper {name!r} is for one agent, env.api={api} has several: leave it out, or use one of "
                f"PettingZoo's "
                "or your own, as module:Class"
            )
        elif ours:
            inner = named(ours[-1])[0]
            raise ConfigError(
                f"the wrapper {name!r} is put around the env itself, so it cannot stand outside {inner!r}, which is "
                f"put around "
                f"its agents: name {name!r} first (env.wrappers come before env.train_wrappers and env.eval_wrappers)"
            )
        else:
            own.append(choice)
    return tuple(own), tuple(ours)
