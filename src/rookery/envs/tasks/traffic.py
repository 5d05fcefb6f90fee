"""Traffic lights in SUMO, simulated by libsumo behind `sumo-rl` (`pip install "rookery[traffic]"`).

    rookery/Crossing-v0    one crossing, an ordinary env with one agent
    rookery/Crossings-v0   env.api=parallel: an agent for every crossing of a network, called as SUMO calls it

    acts      every `delta_time` seconds: which green phase is next (Discrete)
    sees      its phase one-hot, whether it may change, and of each lane density and queue, all in [0, 1]
    is paid   by how many hundred seconds the waiting of the cars in its lanes fell; others: `reward_fn`
    ends      never: it is truncated after `num_seconds` seconds

libsumo runs one simulation in a process, so that each env needs a process of its own: `env.workers=subprocess`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rookery.core.errors import ConfigError
from rookery.core.registry import did_you_mean
from rookery.envs.packages import import_package, import_quietly, must_have
from rookery.envs.tasks.games import Five, Game

_GERMAN = {"cologne": 25_200, "ingolstadt": 57_600}  # s after midnight at which their recorded hour begins
NETWORKS = {  # name → (network, routes, begin in s) among the files that sumo-rl brings
    "single": ("2way-single-intersection/single-intersection.net.xml", "single-intersection-vhvh.rou.xml", 0),
    "2x2": ("2x2grid/2x2.net.xml", "2x2.rou.xml", 0),
    "4x4": ("4x4-Lucas/4x4.net.xml", "4x4c1c2c1c2.rou.xml", 0),
    **{name: (f"RESCO/{name}/{name}.net.xml", f"{name}_1.rou.xml", 0) for name in ("grid4x4", "arterial4x4")},
    **{
        f"{city}{n}": (f"RESCO/{city}{n}/{city}{n}.net.xml", f"{city}{n}.rou.xml", begin)
        for city, begin in _GERMAN.items()
        for n in ((1, 3, 8) if city == "cologne" else (1, 7, 21))
    },
}


class Crossings(Game):
    """All crossings of a network; everybody acts at once."""

    one_per_process = True
    _owner: Crossings | None = None  # whose simulation runs in this process

    def __init__(self, network: str = "2x2", num_seconds: int = 3_600, **further: Any):
        """`further`: as SumoEnvironment of sumo-rl has it; with net_file and route_file of your own, no `network`."""
        sumo_rl = _sumo_rl()
        own = {"num_seconds": num_seconds, "sumo_warnings": False, "add_system_info": False}
        own |= {"add_per_agent_info": False, **({} if "net_file" in further else _files(network, sumo_rl)), **further}
        self._leave()
        self._sumo = sumo_rl.SumoEnvironment(**own, single_agent=False)  # it looks at the network in libsumo, once
        self.time_limit = -(-num_seconds // self._sumo.delta_time)
        self.possible_agents, self.agents = list(self._sumo.ts_ids), []
        self.observation_spaces = {agent: self._sumo.observation_spaces(agent) for agent in self.possible_agents}
        self.action_spaces = {agent: self._sumo.action_spaces(agent) for agent in self.possible_agents}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seed(seed)
        self._leave()
        obs = self._sumo.reset(seed=int(self.random.integers(2**31)))
        Crossings._owner, self.agents = self, list(self.possible_agents)
        return obs, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Five:
        if Crossings._owner is not self:
            raise ConfigError(
                "another env of this process has begun a simulation, and libsumo has room for one: set "
                "env.workers=subprocess, which gives each env a process"
            )
        obs, reward, done, info = self._sumo.step({agent: int(action) for agent, action in actions.items()})
        there, over = self.agents, bool(done["__all__"])
        self.agents = [] if over else there
        flags = dict.fromkeys(there, False), dict.fromkeys(there, over)
        return obs, reward, *flags, dict.fromkeys(there, info)

    def close(self) -> None:
        if Crossings._owner is self:
            self._leave()

    @staticmethod
    def _leave() -> None:
        """No simulation runs in this process."""
        if Crossings._owner is not None:
            Crossings._owner._sumo.close()
            Crossings._owner = None


class Crossing(gymnasium.Env):
    """The only crossing of a network."""

    metadata = {"render_modes": []}
    one_per_process = True

    def __init__(self, network: str = "single", **further: Any):
        self._all = Crossings(network, **further)
        agents = self._all.possible_agents
        if len(agents) > 1:
            raise ConfigError(
                f"network {network!r} has {len(agents)} crossings: use rookery/Crossings-v0 with env.api=parallel"
            )
        (self.agent,), self.time_limit = agents, self._all.time_limit
        self.observation_space, self.action_space = (
            space(self.agent) for space in (self._all.observation_space, self._all.action_space)
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        obs, infos = self._all.reset(seed)
        return obs[self.agent], infos[self.agent]

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, infos = self._all.step({self.agent: action})
        agent = self.agent
        return obs[agent], reward[agent], terminated[agent], truncated[agent], infos[agent]

    def close(self) -> None:
        self._all.close()


def _files(network: str, sumo_rl: Any) -> dict[str, Any]:
    if network not in NETWORKS:
        hint = did_you_mean(network, list(NETWORKS))
        raise ConfigError(f"network {network!r} is none of {', '.join(NETWORKS)}.{hint} Your own: net_file, route_file")
    net, routes, begin = NETWORKS[network]
    file = Path(sumo_rl.__file__).parent / "nets" / net
    return {"net_file": str(file), "route_file": str(file.with_name(routes)), "begin_time": begin}


def _sumo_rl() -> Any:
    """sumo-rl on libsumo: it looks at two variables when it is imported, and says so on standard output."""
    for module in ("sumo", "libsumo", "sumo_rl"):
        must_have(module, "traffic")
    os.environ.setdefault("SUMO_HOME", import_package("sumo", "traffic").SUMO_HOME)
    os.environ["LIBSUMO_AS_TRACI"] = "1"
    return import_quietly("sumo_rl", "traffic")
