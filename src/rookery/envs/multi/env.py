"""MultiEnv: B copies of a task, stepped together, with any number of agents. An env with one agent speaks so, too
(`one_agent`).

A row of an agent is one decision: it acted on an observation, and the row is *complete* (`valid` in that agent's
`Step`) at the step after which it must act again or has ended. Its reward is the sum of all it received since it
acted, in other agents' turns too; its successor is the observation it acts on next, or its entry of `final` if it
ended. Everywhere else its column is a hole.

Engines: `engine.ParallelAgents`, `engine.TurnAgents` (PettingZoo's two APIs), `engine.DictAgents`, and
`one_agent.OneAgent`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import UsageError
from rookery.core.registry import did_you_mean
from rookery.core.spec import spec_of
from rookery.core.tree import Tree
from rookery.envs.actions import action_spec_of, shape_problem
from rookery.envs.vector import Step


@dataclass(slots=True)
class MultiStep:
    """What one step of all envs gave. It belongs to the env and is valid until its next call.

    `ended` has one entry per episode of an env: `length` in env steps, `total` summed over agents, and in its info
    `returns` and `lengths` (rows) of every agent that took part, `unsaid` (who waited when the env ended without a
    word) and the last `infos`.
    """

    agents: dict[str, Step]  # their own `ended` stays empty; `cut`: holes of dropped episodes
    ended: list[EpisodeEnd] = field(default_factory=list)
    stepped: np.ndarray | None = None  # bool [B]: envs that made a step; None: all. Who acted in the others acts again

    def clear(self) -> None:
        """Every row a plain one again, but for its reward: whoever steps an env says what is not."""
        self.ended, self.stepped = [], None
        for step in self.agents.values():
            if step.marked:
                step.clear()

    def forget(self) -> None:
        """No row at all: nothing was stepped yet."""
        self.ended, self.stepped = [], None
        for step in self.agents.values():
            step.clear()
            step.hole(slice(None))

    def hole(self, where: int | slice, num: int) -> None:
        """Those of `num` envs made no step that counts."""
        self.stepped = np.ones(num, np.bool_) if self.stepped is None else self.stepped
        self.stepped[where] = False
        for step in self.agents.values():
            step.hole(where)

    def drop(self, i: int, num: int) -> None:
        """The rows of env i are holes, after which its episode does not go on."""
        self.hole(i, num)
        for step in self.agents.values():
            step.final = [(k, obs) for k, obs in step.final if k != i]
            step.cut.append(i)
            assert step.infos is not None
            step.infos[i] = {}


class MultiEnv(ABC):
    """B copies of one task."""

    exactness: str = "exact"  # or the reason why a resumed run is only approximate
    renewals: int = 0  # as of a VectorEnv
    given_up: int = 0
    wants_infos: bool = False
    pids: tuple[int, ...] = ()
    limited: bool = True
    waits: bool = True  # whether an agent may wait for others, so that some of its rows hold no decision
    everyone: bool = False  # whether every agent must act in every env now: then nobody need look at `acting`

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
            a: action_spec_of(space, f"the action space of {a} in {name}") for a, space in action_spaces.items()
        }
        self.acting = {a: np.zeros(num, np.bool_) for a in self.agents}  # who must act in the next step
        self.renewed = np.zeros(num, np.bool_)  # envs that `restore` could not put back: another episode has begun
        self.obs: dict[str, Tree] = {}  # what each agent acts on next [B, …]; stale where it does not act

    @abstractmethod
    def reset(self) -> None:
        """Start episode 0 of every env."""

    @abstractmethod
    def step(self, action: dict[str, Tree], steps: int | None = None, episodes: int | None = None) -> MultiStep:
        """Step with action[agent] [B, …] of every agent that acts somewhere; its rows are read where it acts.

        Only the first `steps` envs are stepped, or until `episodes` of them ended: the others are holes, and must act
        the next time.
        """

    def _check(self, action: dict[str, Tree]) -> None:
        """A sentence about what is wrong with the actions of a step, if something is."""
        if not isinstance(action, dict):
            raise UsageError(
                f"step got a {type(action).__name__}, expected a dict: agent → its actions [{self.num}, …]"
            )
        everyone = self.everyone and action.keys() == self.acting.keys()
        for agent in action:
            if agent not in self.acting:
                hint = did_you_mean(str(agent), self.agents)
                raise UsageError(f"step got an action of {agent!r}, who is none of {list(self.agents)}.{hint}")
            if not everyone and not self.acting[agent].any():
                now = [name for name, acting in self.acting.items() if acting[0]]
                raise UsageError(
                    f"step got an action of {agent!r}, but it is not its turn in any env: {now} must act "
                    f"({self._place(0, agent)})"
                )
            if problem := shape_problem(action[agent], self.action_spec[agent], self.num):
                raise UsageError(f"the actions of {agent!r} in {self.name} have {problem} ({self.num} envs)")
        for agent, acting in () if everyone else self.acting.items():
            if agent not in action and acting.any():
                place = self._place(int(acting.argmax()), agent)
                raise UsageError(f"step got no action of {agent!r}, who must act ({place})")

    def _place(self, i: int, agent: str) -> str:
        """What messages call an agent of env i."""
        return f"env {i} of {self.name}, agent {agent!r}"

    @abstractmethod
    def call(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of every env, or read an attribute; or call a function with every env, where it lives."""

    def method(self, name: str) -> Callable[..., Any] | None:
        """A method of the first env, to be called by someone else; None if there is none or the engine hides it."""
        return None

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that `restore` needs; changes nothing."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken; where that is impossible, `exactness` becomes the reason."""

    @abstractmethod
    def close(self) -> None:
        """Close every env."""

    def summary(self, out: MultiStep) -> Step:
        """The step of the envs as a whole, for callbacks: rewards of all agents' complete rows, observations and infos
        by agent."""
        steps, num = out.agents, self.num
        reward = np.stack([step.reward for step in steps.values()]).sum(0)
        terminated, truncated = np.zeros(num, bool), np.zeros(num, bool)
        for end in out.ended:
            terminated[end.env], truncated[end.env] = end.terminated, end.truncated
        infos = [
            {agent: step.infos[i] for agent, step in steps.items() if step.infos and step.valid[i]} for i in range(num)
        ]
        stepped = np.ones(num, bool) if out.stepped is None else out.stepped
        cut = sorted({i for step in steps.values() for i in step.cut})
        return Step(self.obs, reward, terminated, truncated, stepped, ended=out.ended, infos=infos, cut=cut)
