"""Layers: what stands between an env with several agents and its table, from the inside out.

    the API's adapter, wrappers of every agent, what agents are told besides (`central`), teams

It stands alone so that an engine knows tables only, and whoever makes one need not know in which order they come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rookery.envs.actions import quicken
from rookery.envs.config import TeamConfig, Wrappers
from rookery.envs.multi.apis import ApiAdapter
from rookery.envs.multi.central import Central
from rookery.envs.multi.teams import Teams, matching
from rookery.envs.multi.wrapped import in_layers


@dataclass(frozen=True, slots=True)
class Layers:
    """As options of an engine."""

    max_episode_steps: int | None = None
    wrappers: Wrappers = ()
    teams: Mapping[str, TeamConfig] = field(default_factory=dict)
    world: str = "auto"
    central: tuple[str, ...] = ()  # patterns of agents who see the world
    ids: bool = False  # everybody sees who it is

    def around(self, adapter: ApiAdapter) -> ApiAdapter:
        """The adapter of an env, in all of them."""
        adapter.limit, adapter.prompt = self.max_episode_steps, bool(self.teams)
        for agent in adapter.agents:
            quicken(adapter.spaces(agent)[1])
        adapter = in_layers(adapter, self.wrappers)
        if self.ids or self.central:
            adapter = Central(adapter, matching(self.central, adapter.agents), self.world, self.ids)
        return Teams(adapter, self.teams, self.world) if self.teams else adapter
