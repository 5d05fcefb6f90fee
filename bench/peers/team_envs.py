"""The two envs with several agents as plain objects, for contenders that bring none: what all agents see as one array.

reset(seed) → obs [G, F]       step(actions) → obs [G, F], reward of the team, terminated, truncated
world() → what a mixer or a central critic sees [S]
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium as gym
import numpy as np


class Foraging:
    """Level-based foraging; the time limit truncates. The world is all that members see, and that they are present."""

    def __init__(self, s: dict[str, Any]):
        package, _, name = s["env"].partition(":")
        importlib.import_module(package)
        spec = gym.spec(name)
        module, _, entry = spec.entry_point.partition(":")
        kwargs = spec.kwargs | {"max_episode_steps": s["episode"] + 1}  # never reached: it would count as an end
        self.env, self.limit = getattr(importlib.import_module(module), entry)(**kwargs), s["episode"]
        boxes, choices = self.env.observation_space, self.env.action_space
        self.agents, self.inputs, self.actions = len(boxes), boxes[0].shape[0], int(choices[0].n)
        self.world_size = self.agents * (self.inputs + 1)

    def reset(self, seed: int | None = None) -> np.ndarray:
        self.obs, self.steps = np.stack(self.env.reset(seed=seed)[0]), 0
        return self.obs

    def step(self, actions: list[int]) -> tuple[np.ndarray, float, bool, bool]:
        obs, rewards, terminated, _, _ = self.env.step(actions)
        self.obs, self.steps = np.stack(obs), self.steps + 1
        return self.obs, float(sum(rewards)), bool(terminated), self.steps >= self.limit and not terminated

    def world(self) -> np.ndarray:
        return np.concatenate([self.obs.ravel(), np.ones(self.agents, np.float32)])


class Particles:
    """MPE through its parallel API; all agents are paid alike. The world is its state()."""

    def __init__(self, env: Any):
        self.env, self.names = env, list(env.possible_agents)
        self.agents, name = len(self.names), self.names[0]
        self.inputs, self.actions = env.observation_space(name).shape[0], int(env.action_space(name).n)
        self.world_size = env.state_space.shape[0]

    def reset(self, seed: int | None = None) -> np.ndarray:
        return self._joint(self.env.reset(seed=seed)[0])

    def step(self, actions: list[int]) -> tuple[np.ndarray, float, bool, bool]:
        obs, rewards, terminated, truncated, _ = self.env.step(dict(zip(self.names, actions)))
        name = self.names[0]
        return self._joint(obs), float(rewards[name]), bool(terminated[name]), bool(truncated[name])

    def world(self) -> np.ndarray:
        return self.env.state()

    def _joint(self, obs: dict[str, np.ndarray]) -> np.ndarray:
        return np.stack([obs[name] for name in self.names])


def make_spread(s: dict[str, Any]) -> Particles:
    package, _, name = s["env"].partition(":")
    return Particles(importlib.import_module(f"{package}.{name}").parallel_env(**s["kwargs"]))
