"""Small envs with several agents, for tests and teaching;
each has an `optimum`: the best mean return of every agent, worked out by hand.

    Pairing    parallel   two agents with different spaces see their own sign; both are paid 1 iff both answer right
    Verdicts   turns      an agent is paid for its answer only when its opponent moves: credit to the right agent
    Visitors   parallel   one agent leaves early, one appears late, one stays
    Shifts     dict       one agent sees every step, the other every third; `__all__` ends it while somebody waits

Ids: `rookery/Pairing-v0` and so on, with the `env.api` above.
They speak PettingZoo's APIs without needing PettingZoo.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

Five = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]


class Game:
    """Common manners: spaces by agent, own generator."""

    metadata: dict[str, Any] = {"render_modes": [], "name": "game"}
    render_mode = None
    possible_agents: list[str] = []
    agents: list[str] = []
    optimum: dict[str, float] = {}
    observation_spaces: dict[str, spaces.Space] = {}
    action_spaces: dict[str, spaces.Space] = {}

    def observation_space(self, agent: str) -> spaces.Space:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        return self.action_spaces[agent]

    def seed(self, seed: int | None) -> None:
        """A seed starts a new generator; None goes on with the old one."""
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)

    @property
    def unwrapped(self) -> Any:
        return self

    def close(self) -> None:
        """Nothing is held."""


class Pairing(Game):
    """left sees one of three signs and answers whether it is the last one;
    right sees one of two and answers 0 or 2. Common reward.
    """

    def __init__(self, rounds: int = 5):
        self.rounds = rounds
        self.possible_agents, self.agents = ["left", "right"], []
        self.observation_spaces = {
            agent: spaces.Box(0.0, 1.0, (n,), np.float32) for agent, n in (("left", 3), ("right", 2))
        }
        self.action_spaces = {"left": spaces.Discrete(2), "right": spaces.Discrete(3)}
        self.optimum = dict.fromkeys(self.possible_agents, float(rounds))

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seed(seed)
        self.agents, self.time = list(self.possible_agents), 0
        return self._draw(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Five:
        right = int(actions["left"]) == int(self.signs[0] == 2) and int(actions["right"]) == 2 * self.signs[1]
        self.time += 1
        over, there = self.time == self.rounds, self.agents
        self.agents = [] if over else there
        reward, flags = dict.fromkeys(there, float(right)), dict.fromkeys(there, over)
        return self._draw(), reward, flags, dict.fromkeys(there, False), {agent: {} for agent in there}

    def _draw(self) -> dict[str, Any]:
        self.signs = int(self.random.integers(3)), int(self.random.integers(2))
        return {agent: np.eye(n, dtype=np.float32)[k] for agent, n, k in zip(("left", "right"), (3, 2), self.signs)}


class Verdicts(Game):
    """Two agents in turn; each must answer the bit it sees.

    ±1 for an answer is paid while the *opponent* moves, the last ones at the end.
    """

    def __init__(self, moves: int = 6):
        self.moves = moves
        self.possible_agents, self.agents = ["first", "second"], []
        self.observation_spaces = {agent: spaces.Box(-1.0, 1.0, (2,), np.float32) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}
        self.optimum = {"first": float((moves + 1) // 2), "second": float(moves // 2)}

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.seed(seed)
        self.agents, self.agent_selection, self.time = list(self.possible_agents), "first", 0
        self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._verdict = dict.fromkeys(self.agents, 0.0)
        self._bit = {agent: int(self.random.integers(2)) for agent in self.agents}

    def observe(self, agent: str) -> np.ndarray:
        return np.array([2 * self._bit[agent] - 1, self.time / self.moves], np.float32)

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        agent = self.agent_selection
        flags = self.terminations[agent], self.truncations[agent]
        return self.observe(agent) if observe else None, self._cumulative_rewards[agent], *flags, self.infos[agent]

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            return self._bury(agent)
        other = self.possible_agents[1 - self.possible_agents.index(agent)]
        self._cumulative_rewards[agent], self.time = 0.0, self.time + 1
        verdict = 1.0 if int(action) == self._bit[agent] else -1.0
        over = self.time == self.moves
        self.rewards = {agent: verdict if over else 0.0, other: self._verdict[other]}
        self._verdict = {agent: verdict, other: 0.0}
        for name, reward in self.rewards.items():
            self._cumulative_rewards[name] += reward
        self._bit[agent], self.agent_selection = int(self.random.integers(2)), other
        self.terminations = dict.fromkeys(self.agents, over)
        return None

    def _bury(self, agent: str) -> None:
        for part in (self.rewards, self._cumulative_rewards, self.terminations, self.truncations, self.infos):
            del part[agent]
        self.agents.remove(agent)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.agent_selection = self.agents[0] if self.agents else agent


class Visitors(Game):
    """early leaves after 2–4 steps, late comes after 2–4 and leaves with steady, whose time is up after 8.

    Reward 1 for answering one's bit.
    """

    rounds = 8

    def __init__(self) -> None:
        self.possible_agents, self.agents = ["early", "steady", "late"], []
        self.observation_spaces = {agent: spaces.Box(-1.0, 8.0, (2,), np.float32) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}
        self.optimum = {"early": 3.0, "steady": 8.0, "late": 5.0}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seed(seed)
        self.agents, self.time = ["early", "steady"], 0
        self._leaves, self._comes = (int(k) for k in self.random.integers(2, 5, 2))
        return self._draw(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Five:
        self.time += 1
        there = [*self.agents, *(["late"] if self.time == self._comes else [])]
        reward = {agent: float(agent in actions and int(actions[agent]) == self._bit[agent]) for agent in there}
        terminated = {agent: agent == "early" and self.time == self._leaves for agent in there}
        truncated = dict.fromkeys(there, self.time == self.rounds)
        self.agents = [agent for agent in there if not terminated[agent] and not truncated[agent]]
        return self._draw(there), reward, terminated, truncated, {agent: {} for agent in there}

    def _draw(self, agents: list[str]) -> dict[str, Any]:
        self._bit = {agent: int(self.random.integers(2)) for agent in agents}
        return {agent: np.array([2 * bit - 1, self.time], np.float32) for agent, bit in self._bit.items()}


class Shifts(Game):
    """day sees every step, night every third, from the third on.

    Both receive 1 per step while their last answer was their bit.
    """

    def __init__(self, rounds: int = 8):
        self.rounds = rounds
        self.possible_agents = ["day", "night"]
        self.observation_spaces = {agent: spaces.Box(-1.0, 1.0, (1,), np.float32) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}
        # night receives 0.5 per step before it was ever asked: in its return, in none of its rows
        self.optimum = {"day": float(rounds), "night": 0.5 * min(rounds, 3) + max(rounds - 3, 0)}

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seed(seed)
        self.time, self._pay = 0, {"day": 0.0, "night": 0.5}
        return self._seen(), {}

    def step(self, actions: dict[str, Any]) -> Five:
        self.time += 1
        self._pay |= {agent: float(int(action) == self._bit[agent]) for agent, action in actions.items()}
        over = {"__all__": self.time == self.rounds}
        return self._seen(), dict(self._pay), over, {"__all__": False}, {}

    def _seen(self) -> dict[str, Any]:
        acting = ["day"] + (["night"] if self.time and self.time % 3 == 0 else [])
        self._bit = getattr(self, "_bit", {}) | {agent: int(self.random.integers(2)) for agent in acting}
        return {agent: np.array([2 * self._bit[agent] - 1], np.float32) for agent in acting}
