"""Google Research Football through the package `gfootball`, for those who can build it.

    rookery/Football-v0   env.api=parallel: `player_0`, `player_1`, … of the left team, 115 numbers and 19 actions each

gfootball is built from source with old packages, so that no extra brings it; `Football()` says what is missing. Its
engine takes a seed only when it is made: a reset with a seed makes it anew. It does not tell why an episode is over,
so the end of the time counts as an end of the task.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.envs.tasks.games import Five, Game


class Football(Game):
    """A match or an exercise; everybody stays to the end."""

    def __init__(self, scenario: str = "academy_3_vs_1_with_keeper", players: int = 3, **further: Any):
        """`further`: as gfootball's create_environment has it, such as rewards."""
        if importlib.util.find_spec("gfootball") is None:
            raise ConfigError(
                "rookery/Football-v0 needs gfootball, which is not installed. It is built from source: "
                "https://github.com/google-research/football says with what, then pip install gfootball. EnvPool has "
                'the game for one player: pip install "rookery[envpool]", env.engine=envpool'
            )
        own = {"env_name": scenario, "number_of_left_players_agent_controls": players}
        self._kwargs = {"representation": "simple115v2"} | further | own
        self._env = self._made({})
        self.possible_agents, self.agents = [f"player_{k}" for k in range(players)], []
        seen, choices = spaces.Box(-np.inf, np.inf, (115,)), _choices(self._env.action_space)
        self.observation_spaces = dict.fromkeys(self.possible_agents, seen)
        self.action_spaces = {agent: spaces.Discrete(choices) for agent in self.possible_agents}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seed(seed)
        if seed is not None:
            self._env.close()
            self._env = self._made({"game_engine_random_seed": int(self.random.integers(2**31))})
        obs, self.agents = self._env.reset(), list(self.possible_agents)
        return self._each(obs), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Five:
        obs, reward, over, info = self._env.step([int(actions[agent]) for agent in self.possible_agents])
        there, self.agents = self.agents, [] if over else self.agents
        flags = dict.fromkeys(there, bool(over)), dict.fromkeys(there, False)
        paid = {agent: float(part) for agent, part in zip(there, np.ravel(reward))}
        return self._each(obs), paid, *flags, dict.fromkeys(there, info)

    def close(self) -> None:
        self._env.close()

    def _made(self, options: dict[str, Any]) -> Any:
        kwargs = self._kwargs | {"other_config_options": self._kwargs.get("other_config_options", {}) | options}
        return importlib.import_module("gfootball.env").create_environment(**kwargs)

    def _each(self, obs: Any) -> dict[str, Any]:
        rows = np.asarray(obs, np.float32).reshape(len(self.possible_agents), -1)
        return dict(zip(self.possible_agents, rows))


def _choices(space: Any) -> int:
    """Of one player: the space is MultiDiscrete if there are several."""
    return int(space.nvec[0] if hasattr(space, "nvec") else space.n)
