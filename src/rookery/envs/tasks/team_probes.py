"""Probes of teams: two agents, a and b, one step, one common reward; each isolates one faculty of learning together.

    Credit     what a does is worth nothing: b is paid for both if it takes its second action. Optimum 1
    Whisper    a sees a sign, b does not and must answer it: they have to communicate. Optimum 1, without it 0
    Summing    a sees a target in [0, 2], and the sum of both actions, each in [−1, 1], shall be it: b must be at 1, for
               else a cannot reach them all. Optimum 1; who does not coordinate (b = 0) gets ⅚

Whisper pays 1 or −1 for choices, and 1 − (action − sign)² with `continuous`; Summing pays 1 − (sum − target)².
Ids: `rookery/Credit-v0` and so on, with env.api=parallel. Each agent is paid the whole reward.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rookery.envs.tasks.games import Five, Game


class TeamProbe(Game):
    """One number to see for each, one action of each."""

    optimum = {"a": 1.0, "b": 1.0}

    def __init__(self, action: spaces.Space):
        self.possible_agents, self.agents = ["a", "b"], []
        self.observation_spaces = dict.fromkeys(self.possible_agents, spaces.Box(-1.0, 2.0, (1,), np.float32))
        self.action_spaces = dict.fromkeys(self.possible_agents, action)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seed(seed)
        self.agents, self.secret = list(self.possible_agents), self.draw()
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Five:
        reward = self.reward(*(float(np.asarray(actions[agent]).sum()) for agent in ("a", "b")))
        there, self.agents = self.agents, []
        ended, cut = dict.fromkeys(there, True), dict.fromkeys(there, False)
        return self._seen(), dict.fromkeys(there, reward), ended, cut, {agent: {} for agent in there}

    def _seen(self) -> dict[str, Any]:
        return {agent: np.full(1, self.secret if agent == "a" else 0.0, np.float32) for agent in self.possible_agents}

    def draw(self) -> float:
        """What a sees."""
        return 0.0

    def reward(self, a: float, b: float) -> float:
        """Of both actions."""
        raise TypeError(f"{type(self).__name__} defines no reward()")


class Credit(TeamProbe):
    """Only what b does counts."""

    def __init__(self) -> None:
        super().__init__(spaces.Discrete(2))

    def reward(self, a: float, b: float) -> float:
        return b


class Whisper(TeamProbe):
    """b must answer what only a sees."""

    def __init__(self, continuous: bool = False):
        super().__init__(spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else spaces.Discrete(2))
        self.continuous = continuous

    def draw(self) -> float:
        return float(self.random.choice([-1.0, 1.0]))

    def reward(self, a: float, b: float) -> float:
        return 1.0 - (b - self.secret) ** 2 if self.continuous else (2.0 * b - 1.0) * self.secret


class Summing(TeamProbe):
    """Two actions make up what only a sees."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(-1.0, 1.0, (1,), np.float32))

    def draw(self) -> float:
        return float(self.random.uniform(0.0, 2.0))

    def reward(self, a: float, b: float) -> float:
        return 1.0 - (a + b - self.secret) ** 2
