"""Spaces: what agents of a run see and do, apart from the envs; spaces.json of its folder.

Whoever loads, exports or evaluates a policy knows its networks' shapes from here and needs no env for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rookery.core.spec import spec_from_json, spec_to_json
from rookery.core.tree import Tree


class Spaced(Protocol):
    """An env, or what is known of it."""

    @property
    def name(self) -> str: ...
    @property
    def agents(self) -> tuple[str, ...]: ...
    @property
    def obs_spec(self) -> Mapping[str, Tree]: ...
    @property
    def action_spec(self) -> Mapping[str, Tree]: ...


@dataclass(frozen=True, slots=True)
class Spaces:
    """Of every agent, in the order of the env."""

    name: str  # of the env
    obs_spec: dict[str, Tree]  # of one observation
    action_spec: dict[str, Tree]

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(self.obs_spec)

    @classmethod
    def of(cls, env: Spaced) -> Spaces:
        return cls(env.name, dict(env.obs_spec), dict(env.action_spec))

    def to_json(self) -> dict[str, Any]:
        pairs = {
            agent: {"observation": spec_to_json(self.obs_spec[agent]), "action": spec_to_json(self.action_spec[agent])}
            for agent in self.agents
        }
        return {"env": self.name, "agents": pairs}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Spaces:
        agents = plain["agents"]
        specs = [{a: spec_from_json(pair[kind]) for a, pair in agents.items()} for kind in ("observation", "action")]
        return cls(plain["env"], *specs)
