"""Central: agents that see more than their own: the world, for a critic that is told everything, and who they are, for
a network that several of them share.

    own     what the agent itself sees; the parts of a Dict keep their names
    who     one-hot of the agent among all of the env's, with env.ids
    world   the env's state(), or all that agents see, side by side, and who of them is there

It stands alone because an agent is told of the world step by step, whoever acts; a team (`teams`) has it in its row.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.core.spec import is_mask, spec_of
from rookery.core.team import OWN, WHO, WORLD
from rookery.core.tree import flatten
from rookery.envs.boundary import Receiver
from rookery.envs.multi.apis import ApiAdapter, Timestep
from rookery.envs.multi.team_rows import boxed, write_one_hot
from rookery.envs.multi.teams import state_space


class Central(ApiAdapter):
    """An adapter whose agents are told so; `central`: those with a critic that sees the world."""

    def __init__(self, inner: ApiAdapter, central: Collection[str], world: str, ids: bool):
        self.inner, self.env, self.agents, self.limit = inner, inner.env, inner.agents, inner.limit
        self.comes_back = inner.comes_back
        self._central = frozenset(central)
        space = state_space(self.env, world) if central else None
        self._state = None if space is None else self.env.state
        self._slots, size = dict[str, _Slot](), len(self.agents)  # of a joined world: who is there comes first
        for agent in self.agents if central and space is None else ():
            self._slots[agent] = slot = _Slot(inner.spaces(agent)[0], size)
            size = slot.at.stop
        self._world = np.zeros(size, np.float32)
        joined = spaces.Box(-np.inf, np.inf, self._world.shape, np.float32)
        more: dict[str, spaces.Space] = {WORLD: joined if space is None else space}
        one_hot = np.eye(len(self.agents), dtype=np.float32)
        self._who = {agent: {WHO: one_hot[k]} if ids else {} for k, agent in enumerate(self.agents)}
        who = {WHO: spaces.Box(0.0, 1.0, (len(self.agents),), np.float32)} if ids else {}
        self._spaces = {a: _with(inner.spaces(a)[0], who | (more if a in self._central else {})) for a in self.agents}
        self._gone: set[str] = set()  # who has ended
        self._waits: list[str] = []  # who was told nothing in the last step and has not ended
        self._last: dict[str, tuple[Any, float]] = {}  # what they see and received, if the episode is cut there

    def spaces(self, agent: str) -> tuple[spaces.Space, spaces.Space]:
        return self._spaces[agent], self.inner.spaces(agent)[1]

    def reset(self, seed: int | None) -> Timestep:
        self._world[:] = 0.0
        self._gone.clear()
        return self._through(self.inner.reset(seed))

    def step(self, actions: dict[str, Any]) -> Timestep:
        return self._through(self.inner.step(actions))

    def method(self, name: str) -> Any:
        return self.inner.method(name)

    def last(self, agent: str) -> tuple[Any, float]:
        if agent in self._waits and not self._last:  # the world that one of them sees is that of all of them
            self._last = {waiting: self.inner.last(waiting) for waiting in self._waits}
            self._join({waiting: obs for waiting, (obs, _) in self._last.items()})
        obs, reward = self._last[agent] if agent in self._last else self.inner.last(agent)
        return None if obs is None else self._seen(agent, obs, self._now()), reward

    def _through(self, timestep: Timestep) -> Timestep:
        self._gone.difference_update(timestep.acting)  # who comes back
        self._gone.update(timestep.terminated, timestep.truncated)
        self._last, self._waits = {}, [a for a in self.agents if a not in timestep.obs and a not in self._gone]
        self._join(timestep.obs, timestep.terminated)
        world = self._now()
        timestep.obs = {
            agent: obs if obs is None or agent not in self._spaces else self._seen(agent, obs, world)
            for agent, obs in timestep.obs.items()
        }
        return timestep

    def _now(self) -> Any:
        if not self._central:
            return None
        return self._world if self._state is None else self._state()

    def _join(self, seen: Mapping[str, Any], terminated: Collection[str] = ()) -> None:
        """What everybody sees now, or saw last."""
        for k, (agent, slot) in enumerate(self._slots.items()):
            if seen.get(agent) is not None:
                slot.write(self._world, seen[agent])
                self._world[k] = 1.0
            if agent in terminated:
                self._world[k], self._world[slot.at] = 0.0, 0.0

    def _seen(self, agent: str, obs: Any, world: Any) -> Any:
        if not self._who[agent] and agent not in self._central:
            return obs
        own = dict(obs) if isinstance(obs, dict) else {OWN: obs}
        own |= self._who[agent]
        if agent in self._central:
            own[WORLD] = world
        return own


class _Slot:
    """Where what one agent sees stands in the joined world."""

    def __init__(self, space: spaces.Space, start: int):
        spec = spec_of(space)
        self._received = Receiver(space, spec, 1)
        self._parts, at = [], start  # (where, buffer, its one-hot form)
        for path, leaf in flatten(spec).items():
            if not is_mask(path):
                box = boxed(leaf)
                here = slice(at, at + math.prod(box.shape))
                self._parts.append((here, flatten(self._received.obs)[path], leaf))
                at = here.stop
        self.at = slice(start, at)

    def write(self, world: np.ndarray, obs: Any) -> None:
        self._received.write(0, obs)
        for here, buffer, leaf in self._parts:
            if leaf.kind == "box":
                world[here] = buffer.ravel() if buffer.dtype != np.uint8 else buffer.ravel() / np.float32(255)
            else:
                write_one_hot(world[here], leaf, buffer[0].ravel())


def _with(space: spaces.Space, more: dict[str, spaces.Space]) -> spaces.Space:
    if not more:
        return space
    own = dict(space.spaces) if isinstance(space, spaces.Dict) else {OWN: space}
    if taken := [key for key in more if key in own]:
        raise ConfigError(f"the observation has an entry {taken[0]!r} of its own, which would be hidden: rename it.")
    return spaces.Dict(own | more)
