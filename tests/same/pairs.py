"""Envs for two players: goals for both, and turns whose observations are numbers that can be followed by hand."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rookery.envs.tasks.goals import BitFlip


class TwoBits:
    """Parallel API: two bit flippers side by side; who has ended waits for the other one."""

    metadata = {"name": "two-bits"}

    def __init__(self, bits: int = 4):
        self.envs = {"left": BitFlip(bits), "right": BitFlip(bits)}
        self.possible_agents, self.agents = list(self.envs), []
        self.compute_reward = self.envs["left"].compute_reward
        self.compute_terminated = self.envs["left"].compute_terminated

    def observation_space(self, agent):
        return self.envs[agent].observation_space

    def action_space(self, agent):
        return self.envs[agent].action_space

    def reset(self, seed=None, options=None):
        self.agents = list(self.envs)
        obs = {a: env.reset(seed=None if seed is None else seed + k)[0] for k, (a, env) in enumerate(self.envs.items())}
        return obs, {a: {} for a in self.envs}

    def step(self, actions):
        parts = {agent: self.envs[agent].step(action) for agent, action in actions.items()}
        self.agents = [a for a in self.agents if not (parts[a][2] or parts[a][3])]
        return tuple({a: part[k] for a, part in parts.items()} for k in range(5))

    def close(self):
        pass


class Numbered:
    """Dict API: `a` acts in even steps, `b` in odd ones; the n-th observation of an agent is 100 s + n, s the
    episode's seed modulo 1000."""

    def __init__(self, turns: int = 7):
        self.turns = turns
        self.observation_spaces = {agent: spaces.Box(-1, 1e6, (1,), np.float32) for agent in "ab"}
        self.action_spaces = {agent: spaces.Discrete(2) for agent in "ab"}

    def reset(self, seed=None, options=None):
        self.base, self.t, self.seen = 100 * (seed % 1000), 0, {"a": 0, "b": 0}
        return {"a": self._look("a")}, {}

    def _look(self, agent):
        self.seen[agent] += 1
        return np.array([self.base + self.seen[agent]], np.float32)

    def step(self, actions):
        self.t += 1
        whose, over = "ab"[self.t % 2], self.t >= self.turns
        flags = {"__all__": over}
        return {whose: self._look(whose)}, dict.fromkeys(actions, 1.0), flags, {"__all__": False}, {}

    def close(self):
        pass
