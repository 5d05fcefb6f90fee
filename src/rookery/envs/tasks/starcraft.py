"""StarCraft II through SMAC (Samvelyan 2019), for those who have the game.

    rookery/StarCraft-v0   env.api=parallel: `ally_0`, `ally_1`, … against the game's own player

Neither SMAC nor the game can be installed by an extra; `StarCraft()` says what is missing. SMAX (`rookery/SMAX-v0`) is
the same kind of task without them. SMAC takes a seed only when it starts the game, so a resumed run is approximate.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.core.spec import MASK
from rookery.envs.tasks.games import Five, Game

_INSTEAD = "Without the game: env.id=rookery/SMAX-v0."


class StarCraft(Game):
    """One battle after the other; fallen units leave, and are paid what all are."""

    def __init__(self, map_name: str = "3m", **further: Any):
        """`further`: as SMAC's StarCraft2Env has it."""
        self._game = _smac()(map_name=map_name, **further)
        size = self._game.get_env_info()
        self.possible_agents, self.agents = [f"ally_{k}" for k in range(size["n_agents"])], []
        self.time_limit, choices = int(size["episode_limit"]), int(size["n_actions"])
        seen = spaces.Box(-np.inf, np.inf, (int(size["obs_shape"]),))
        self.observation_spaces = {
            agent: spaces.Dict({"observation": seen, MASK: spaces.MultiBinary(choices)})
            for agent in self.possible_agents
        }
        self.action_spaces = {agent: spaces.Discrete(choices) for agent in self.possible_agents}
        self.state_space = spaces.Box(-np.inf, np.inf, (int(size["state_shape"]),))

    def state(self) -> np.ndarray:
        return np.asarray(self._game.get_state(), np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self._game.reset()
        self.agents = list(self.possible_agents)
        return self._look(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Five:
        paid, over, info = self._game.step([int(actions.get(agent, 0)) for agent in self.possible_agents])  # 0: nothing
        obs, there = self._look(), self.agents
        fallen = {agent for agent in there if obs[agent][MASK][0]}  # who may do nothing has fallen
        late = bool(over and info.get("episode_limit", False))
        terminated = {agent: agent in fallen or bool(over and not late) for agent in there}
        truncated = {agent: late and agent not in fallen for agent in there}
        self.agents = [] if over else [agent for agent in there if agent not in fallen]
        won = {"is_success": bool(info.get("battle_won", False))} if over else {}
        reward = dict.fromkeys(self.possible_agents, float(paid))
        return {agent: obs[agent] for agent in there}, reward, terminated, truncated, dict.fromkeys(there, won)

    def close(self) -> None:
        self._game.close()

    def _look(self) -> dict[str, Any]:
        seen, legal = self._game.get_obs(), self._game.get_avail_actions()
        return {
            agent: {"observation": np.asarray(seen[k], np.float32), MASK: np.asarray(legal[k], np.int8)}
            for k, agent in enumerate(self.possible_agents)
        }


def _smac() -> Any:
    """StarCraft2Env of SMAC, if all that it needs is there."""
    if importlib.util.find_spec("smac") is None or importlib.util.find_spec("smac.env") is None:
        other = " The smac of the package index is another package." if importlib.util.find_spec("smac") else ""
        raise ConfigError(
            "rookery/StarCraft-v0 needs SMAC, which is not installed: pip install "
            f"git+https://github.com/oxwhirl/smac.git{other} {_INSTEAD}"
        )
    folder = Path(os.environ.get("SC2PATH", "~/StarCraftII")).expanduser()
    if not (folder / "Versions").is_dir() or not (folder / "Maps" / "SMAC_Maps").is_dir():
        part = "SMAC_Maps in its folder Maps" if (folder / "Versions").is_dir() else "StarCraft II"
        raise ConfigError(
            f"rookery/StarCraft-v0 needs {part}, which is not in {folder}: install it (Blizzard/s2client-proto and "
            f"oxwhirl/smac on GitHub say how) and set SC2PATH to its folder. {_INSTEAD}"
        )
    return importlib.import_module("smac.env").StarCraft2Env
