"""What the agents and teams of a numba engine see: views of the arrays that its kernel writes, so that nothing is
copied.

    own     f32 [B, N, …]  what every agent sees, those of a team side by side in its order
    state   f32 [B, S]     the state of the env
    joined  f32 [B, …]     who is there, and what all see in the order of the env, if a central critic is told that

It gives what `multi.teams` and `multi.central` give for a task in which everybody acts in every step and all end
together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from rookery.core.errors import ConfigError
from rookery.core.spec import Leaf, describe, zeros
from rookery.core.team import AGENTS, OWN, PRESENT, WHO, WORLD
from rookery.core.tree import Tree, leaves, tree_map, tree_take
from rookery.envs.multi.layers import Layers


class Views:
    """Of the arrays of B envs. `members`: of every team; `order`: all agents, as they stand side by side."""

    def __init__(self, num: int, sizes: tuple[int, int], agents: tuple[str, ...], members: dict[str, tuple[str, ...]]):
        """`sizes`: numbers that an agent sees, and of the state; `agents` in the order of the env."""
        teams = {member: team for team, names in members.items() for member in names}
        self.num, self.members = num, members
        bodies = dict.fromkeys(teams.get(agent, agent) for agent in agents)
        self.order = [member for body in bodies for member in members.get(body, (body,))]
        self.place = np.array([self.order.index(agent) for agent in agents], np.int64)
        self.at: dict[str, slice] = {}
        stop = 0
        for body in bodies:
            start, stop = stop, stop + len(members.get(body, (body,)))
            self.at[body] = slice(start, stop)
        self.own = np.zeros((num, len(agents), sizes[0]), np.float32)
        self.state = np.zeros((num, sizes[1]), np.float32)
        self._joined: np.ndarray | None = None

    def of(self, body: str, spec: Tree, joined: bool) -> Tree:
        """What this agent or team sees [B, …]; `joined`: the world of a central critic is what all see."""
        if body in self.members:
            present = np.ones((self.num, len(self.members[body])), np.int8)
            parts = {PRESENT: present, WORLD: self.state}
            shown = {key: parts[key] if key in parts else self._seen(spec[key], self.at[body], joined) for key in spec}
        else:
            shown = self._seen(spec, self.at[body].start, joined)
        for leaf, want in zip(leaves(shown), leaves(zeros(spec, self.num)), strict=True):
            if (leaf.shape, leaf.dtype) != (want.shape, want.dtype):
                raise ConfigError(f"env.engine=native cannot show {body!r} {describe(spec)}. Use env.engine=gymnasium")
        return shown

    def _seen(self, spec: Tree, at: Any, joined: bool) -> Tree:
        own = self.own[:, at]
        if isinstance(spec, Leaf):
            return own
        parts = {OWN: own}
        if WHO in spec:
            who = np.zeros((len(self.place), len(self.place)), np.float32)
            who[self.place, np.arange(len(who))] = 1.0
            parts[WHO] = np.repeat(who[None, at], self.num, 0)
        if WORLD in spec:
            world = self._world() if joined else self.state
            lead = own.shape[:-1]
            parts[WORLD] = np.broadcast_to(world[:, None] if len(lead) > 1 else world, (*lead, world.shape[-1]))
        return {key: parts[key] for key in spec}

    def _world(self) -> np.ndarray:
        if self._joined is None:
            self._joined = np.ones((self.num, len(self.place) + self.own[0].size), np.float32)
        return self._joined

    def join(self) -> None:
        """Bring the joined world up to date."""
        if self._joined is None:
            return
        width = self.own.shape[2]
        for k, place in enumerate(self.place):
            start = len(self.place) + k * width
            self._joined[:, start : start + width] = self.own[:, place]

    def finals(self, body: str, obs: Tree, rows: np.ndarray, terminated: np.ndarray) -> list[tuple[int, Tree]]:
        """(env, copy of what it saw last) of these envs; of who terminated nothing is there any more."""
        copies = tree_map(lambda x: x[rows], obs)
        gone = np.flatnonzero(terminated[rows])
        if len(gone) and body in self.members:
            for part in (*leaves(copies[AGENTS]), copies[PRESENT]):
                part[gone] = 0
        elif len(gone) and self._joined is not None and isinstance(copies, dict) and WORLD in copies:
            copies[WORLD][gone] = 0
        return [(i, tree_take(copies, k)) for k, i in enumerate(rows.tolist())]


def payroll(views: Views, agents: tuple[str, ...], layers: Layers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first column of every agent or team, columns in which a team adds up what it gets at an end, share of each
    member; 0: no team)."""
    edges = np.array([views.at[agent].start for agent in agents] + [len(views.order)], np.int64)
    last = np.concatenate([np.sort(np.argsort(views.place)[views.at[agent]]) for agent in agents])
    share = [0.0] * len(agents)
    for k, agent in enumerate(agents):
        if agent in views.members:
            share[k] = 1 / len(views.members[agent]) if layers.teams[agent].reward == "mean" else 1.0
    return edges, views.place[last], np.array(share)


@njit(cache=True)
def settle(
    rows: int,
    reward: np.ndarray,  # f64 [B, N]
    flags: np.ndarray,
    edges: np.ndarray,
    last: np.ndarray,
    share: np.ndarray,
    earned: np.ndarray,  # f32 [A, B]: rewards of agents and teams
    totals: np.ndarray,  # f64 [B, A]: their returns
    paid: np.ndarray,  # f64 [B, N]: returns of every agent
) -> None:
    """From the rewards of agents to those of agents and teams, added up in the order of `multi.teams`: as members
    stand in their team, but in the order of the env when the task is over."""
    for i in range(rows):
        over = flags[0, i] or flags[1, i]
        for a in range(len(share)):
            if share[a] == 0.0:
                value = reward[i, edges[a]]
                value = 0.0 + value if over else value
            else:
                value = 0.0
                for at in range(edges[a], edges[a + 1]):
                    k = last[at] if flags[2, i] else at
                    paid[i, k] += reward[i, k]
                    value += reward[i, k] * share[a]
            totals[i, a] += value
            earned[a, i] = value
