"""Matrix games for two agents with one common reward: small, and known for how cooperative learning fails in them.

    TwoStep    QMIX (Rashid 2018), section 6: in the first step only a's action counts and chooses the matrix,
               2A [[7, 7], [7, 7]] or 2B [[0, 1], [1, 8]]. Optimum 8; who cannot value 8 above what misses cost plays 7
    Climbing   Claus and Boutilier 1998: [[11, −30, 0], [−30, 7, 6], [0, 0, 5]]. Optimum 11, next to the worst
    Penalty    the same authors: [[10, 0, k], [0, 2, 0], [k, 0, 10]], k ≤ 0. Optimum 10, twice: they must agree

Ids: `rookery/TwoStep-v0` and so on, with env.api=parallel. Each agent is paid the whole entry.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rookery.envs.tasks.games import Five, Game

CLIMBING = [[11.0, -30.0, 0.0], [-30.0, 7.0, 6.0], [0.0, 0.0, 5.0]]
TWO_STEP = [[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]]


class MatrixGame(Game):
    """One choice each, one payoff. What both see, and the state, is where they are: one-hot of the matrix."""

    def __init__(self, payoffs: list[list[list[float]]]):
        """`payoffs`: of every matrix [M, A, A]."""
        self.payoffs = np.array(payoffs)
        self.possible_agents, self.agents = ["a", "b"], []
        choices = self.payoffs.shape[1]
        self.state_space = spaces.Box(0.0, 1.0, (self.places,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, self.state_space)
        self.action_spaces = {agent: spaces.Discrete(choices) for agent in self.possible_agents}
        self.optimum = dict.fromkeys(self.possible_agents, float(self.payoffs.max()))

    @property
    def places(self) -> int:
        """Where they can be."""
        return len(self.payoffs)

    def state(self) -> np.ndarray:
        return np.eye(self.places, dtype=np.float32)[self.place]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self.place = list(self.possible_agents), 0
        return {agent: self.state() for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Five:
        pay, over = self.play(int(actions["a"]), int(actions["b"]))
        there, self.agents = self.agents, [] if over else self.agents
        obs, rewards = {agent: self.state() for agent in there}, dict.fromkeys(there, pay)
        return obs, rewards, dict.fromkeys(there, over), dict.fromkeys(there, False), {agent: {} for agent in there}

    def play(self, a: int, b: int) -> tuple[float, bool]:
        """(payoff, whether that was all)."""
        return float(self.payoffs[self.place, a, b]), True


class TwoStep(MatrixGame):
    """Place 0, where a chooses; then 2A or 2B."""

    def __init__(self) -> None:
        super().__init__(TWO_STEP)

    @property
    def places(self) -> int:
        return 3

    def play(self, a: int, b: int) -> tuple[float, bool]:
        if self.place == 0:
            self.place = 1 + a
            return 0.0, False
        return float(self.payoffs[self.place - 1, a, b]), True


class Climbing(MatrixGame):
    """The best pair of actions lies beside the worst."""

    def __init__(self) -> None:
        super().__init__([CLIMBING])


class Penalty(MatrixGame):
    """Two best pairs, and `penalty` if they mix them up."""

    def __init__(self, penalty: float = -100.0):
        super().__init__([[[10.0, 0.0, penalty], [0.0, 2.0, 0.0], [penalty, 0.0, 10.0]]])
