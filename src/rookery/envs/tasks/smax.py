"""SMAX of JaxMARL: battles of small armies as in StarCraft, without its binary (`pip install "rookery[smax]"`).

    rookery/SMAX-v0   env.api=parallel: `ally_0`, `ally_1`, … against units that follow a script

    acts      four ways to walk, stop, or shoot at an enemy; `action_mask` has those that are possible
    sees      what is in sight of the unit; `state()` has all units, their places as shares of the map
    is paid   the share of health that the enemies lost, and 1 for a victory; all allies alike, also who has fallen
    ends      fallen units leave; time is up after `max_steps`, which truncates

A scenario is compiled once per process. Steps are exact by seed on one machine.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.core.registry import did_you_mean
from rookery.core.spec import MASK
from rookery.envs.packages import import_package, import_quietly
from rookery.envs.tasks.games import Five, Game

_WHO = "rookery/SMAX-v0"


class SMAX(Game):
    """One battle after the other."""

    def __init__(self, scenario: str = "3m", **further: Any):
        """`further`: as jaxmarl's SMAX has it, such as max_steps."""
        self._battle = battle = _battle(scenario, tuple(sorted(further.items())))
        self.possible_agents, self.agents, self.time_limit = list(battle.agents), [], battle.limit
        seen = {"observation": spaces.Box(-np.inf, np.inf, (battle.seen,)), MASK: spaces.MultiBinary(battle.choices)}
        self.observation_spaces = {agent: spaces.Dict(seen) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(battle.choices) for agent in self.possible_agents}
        self.state_space = spaces.Box(-np.inf, np.inf, (battle.world,))

    def state(self) -> np.ndarray:
        return self._world

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seed(seed)
        self._key, self._units, view = self._battle.reset(int(self.random.integers(2**31)))
        self.agents = list(self.possible_agents)
        return self._look(view), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Five:
        chosen = np.array([actions.get(agent, self._battle.stop) for agent in self.possible_agents], np.int32)
        self._key, self._units, view = self._battle.step(self._key, self._units, chosen)
        obs, there = self._look(view), self.agents
        allies, enemies = np.asarray(view["allies"]), bool(np.any(view["enemies"]))
        over = bool(view["over"])
        fallen = {agent: not alive for agent, alive in zip(self.possible_agents, allies)}
        fought = over and (not enemies or not allies.any())
        terminated = {agent: fallen[agent] or fought for agent in there}
        truncated = {agent: over and not terminated[agent] for agent in there}
        self.agents = [] if over else [agent for agent in there if not fallen[agent]]
        reward = dict.fromkeys(self.possible_agents, float(view["reward"]))  # also of who has fallen
        won = {"is_success": bool(allies.any() and not enemies)} if over else {}
        return {agent: obs[agent] for agent in there}, reward, terminated, truncated, dict.fromkeys(there, won)

    def _look(self, view: dict[str, Any]) -> dict[str, Any]:
        self._world, seen, legal = (np.asarray(view[key]) for key in ("world", "seen", "legal"))
        return {agent: {"observation": seen[k], MASK: legal[k]} for k, agent in enumerate(self.possible_agents)}


class _Battle:
    """The compiled functions of a scenario."""

    def __init__(self, env: Any, jax: Any):
        self.env, self.agents, self.stop = env, tuple(env.agents), env.num_movement_actions - 1
        self.seen, self.choices, self.world = env.obs_size, env.num_ally_actions, env.state_size
        self.limit = env.max_steps + 1  # it counts from 0
        own = len(env.own_features)
        places = np.ones(self.world, np.float32)
        for unit in range(env.num_allies + env.num_enemies):
            places[own * unit + 1 : own * unit + 3] = 1 / env.map_width, 1 / env.map_height
        numpy = jax.numpy

        def shown(obs: Any, state: Any) -> dict[str, Any]:
            alive, legal = state.state.unit_alive, env.get_avail_actions(state)
            return {
                "world": obs["world_state"] * places,
                "seen": numpy.stack([obs[agent] for agent in self.agents]),
                "legal": numpy.stack([legal[agent] for agent in self.agents]).astype("int8"),
                "allies": alive[: env.num_allies],
                "enemies": alive[env.num_allies :],
            }

        def reset(seed: Any) -> tuple[Any, Any, dict[str, Any]]:
            key, first = jax.random.split(jax.random.PRNGKey(seed))
            obs, state = env.reset(first)
            return key, state, shown(obs, state)

        def step(key: Any, state: Any, actions: Any) -> tuple[Any, Any, dict[str, Any]]:
            key, now = jax.random.split(key)
            chosen = {agent: actions[k] for k, agent in enumerate(self.agents)}
            obs, state, reward, done, _ = env.step_env(now, state, chosen)
            return key, state, shown(obs, state) | {"reward": reward[self.agents[0]], "over": done["__all__"]}

        self.reset, self.step = jax.jit(reset), jax.jit(step)


@lru_cache
def _battle(scenario: str, further: tuple[tuple[str, Any], ...]) -> _Battle:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    smax = import_quietly("jaxmarl.environments.smax", _WHO)  # it tells what else it could import
    known = smax.smax_env.MAP_NAME_TO_SCENARIO
    if scenario not in known:
        raise ConfigError(f"scenario {scenario!r} is none of {', '.join(known)}.{did_you_mean(scenario, list(known))}")
    env = smax.HeuristicEnemySMAX(scenario=known[scenario], **dict(further))
    return _Battle(env, import_package("jax", _WHO))
