"""MultiEnv: B copies of a task with several agents, stepped together.

A row of an agent is one decision: it acted on an observation, and the row is *complete* (`valid` in that agent's `Step`) at the step
after which it must act again or has ended. Its reward is the sum of all it received since it acted, in other agents' turns too; its successor
is the observation it acts on next, or its entry of `final` if it ended. Everywhere else its column is a hole.

Engines: `agents.ParallelAgents`, `agents.TurnAgents` (PettingZoo's two APIs) and `agents.DictAgents`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from rookery.core.chunk import EpisodeEnd
from rookery.core.spec import spec_of
from rookery.core.tree import Tree
from rookery.envs.boundary import Receiver
from rookery.envs.vector import Step


@dataclass(slots=True)
class MultiStep:
    """What one step of all envs gave. It belongs to the env and is valid until its next call.

    `ended` has one entry per episode of an env: `length` in env steps, `total` summed over agents, and in its info `returns` and
    `lengths` (rows) of every agent that took part, `unsaid` (who waited when the env ended without a word) and the last `infos`.
    """

    agents: dict[str, Step]  # their own `ended` and `cut` stay empty
    ended: list[EpisodeEnd] = field(default_factory=list)


class MultiEnv(ABC):
    """B copies of one task with several agents."""

    exactness: str = "exact"  # or the reason why a resumed run is only approximate
    renewals: int = 0  # as of a VectorEnv
    given_up: int = 0
    wants_infos: bool = False
    pids: tuple[int, ...] = ()

    def __init__(
        self, num: int, obs_spaces: dict[str, spaces.Space], action_spaces: dict[str, spaces.Space], name: str
    ):
        self.num = num
        self.name = name
        self.agents = tuple(obs_spaces)  # all that may appear, in a fixed order
        self.obs_spaces, self.action_spaces = obs_spaces, action_spaces  # of one env, per agent
        self.obs_spec = {
            a: spec_of(space, f"the observation space of {a} in {name}") for a, space in obs_spaces.items()
        }
        self.action_spec = {
            a: spec_of(space, f"the action space of {a} in {name}") for a, space in action_spaces.items()
        }
        self.acting = {a: np.zeros(num, np.bool_) for a in self.agents}  # who must act in the next step
        self.receivers = {a: Receiver(space, self.obs_spec[a], num) for a, space in obs_spaces.items()}
        self.out = MultiStep({a: self._holes(receiver.obs) for a, receiver in self.receivers.items()})

    def _holes(self, obs: Tree) -> Step:
        terminated, truncated, valid = (np.zeros(self.num, np.bool_) for _ in range(3))
        infos: list[dict[str, Any]] = [{} for _ in range(self.num)]
        return Step(obs, np.zeros(self.num, np.float32), terminated, truncated, valid, infos=infos, marked=True)

    @property
    def obs(self) -> dict[str, Tree]:
        """What each agent acts on next [B, …]; stale where it does not act."""
        return {agent: step.obs for agent, step in self.out.agents.items()}

    @abstractmethod
    def reset(self) -> None:
        """Start episode 0 of every env."""

    @abstractmethod
    def step(self, action: dict[str, Tree], steps: int | None = None, episodes: int | None = None) -> MultiStep:
        """Step with action[agent] [B, …] of every agent that acts somewhere; its rows are read where it acts.

        Only the first `steps` envs are stepped, or until `episodes` of them ended: the others are holes, and must act the next time.
        """

    @abstractmethod
    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of every env, or read an attribute."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that `restore` needs; changes nothing."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken; where that is impossible, `exactness` becomes the reason."""

    @abstractmethod
    def close(self) -> None:
        """Close every env."""

    def _clear(self) -> None:
        """Every row a hole again: a completed one says so."""
        self.out.ended = []
        for step in self.out.agents.values():
            step.reward[:] = 0.0
            step.terminated[:], step.truncated[:], step.valid[:] = False, False, False
            step.final = []
