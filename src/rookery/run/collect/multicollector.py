"""MultiCollector: steps a MultiEnv with several players and fills one [T, C] chunk per player.

    columns of a player   B for each agent it may sit for, agents in the order of the env
    a row                 one step of all envs; `valid` where a decision of the player became complete in it

Each player acts with a random stream of its own, so its numbers do not depend on who else is there. Counts are env steps and episodes of envs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any

import numpy as np

from rookery.acting.actor import Actor, Message
from rookery.core.chunk import Collected, EpisodeEnd
from rookery.core.errors import UsageError
from rookery.core.tree import flatten, tree_map
from rookery.envs.multi.env import MultiEnv, MultiStep
from rookery.envs.vector import Step
from rookery.run.collect.chunks import Limits, copied, joined
from rookery.run.collect.rows import PlayerRows
from rookery.run.collect.seats import Seats

Turns = dict[str, np.ndarray]  # agent → bool [B]


class MultiCollector:
    """One MultiEnv, its seats, and the actor and random stream of every player."""

    def __init__(
        self,
        env: MultiEnv,
        players: Mapping[str, Actor],
        streams: Mapping[str, np.random.Generator | None],
        seats: Seats,
        *,
        greedy: bool = False,
        index: int = 0,
    ):
        self.env, self.seats, self.greedy, self.index = env, seats, greedy, index
        self.rows: dict[str, PlayerRows] = {}
        for name, actor in players.items():
            agents = seats.agents(name)
            self.rows[name] = PlayerRows(actor, streams[name], env.obs_spec[agents[0]], agents, env.num)
        self.on_begin: Callable[[Any], None] | None = None  # before the rows of a chunk
        self.on_step: Callable[[Any, Step], None] | None = None  # hook of callbacks that want every step
        self.time_env = self.time_act = 0  # nanoseconds
        self._ready = False

    def reset(self) -> None:
        """Start episode 0 in every env."""
        self.env.reset()
        for rows in self.rows.values():
            rows.first[:] = True
        self._ready = True

    def load(self, messages: dict[str, Message]) -> None:
        for player, message in messages.items():
            self.rows[player].actor.load(message)

    def collect(self, rows: int | None = None, *, steps: int | None = None, episodes: int | None = None) -> Collected:
        """`rows` rows, or until `steps` env steps or `episodes` episodes are done, whichever is first.

        The arrays of a chunk are reused by the next call with the same number of rows.
        """
        if rows is None and steps is None and episodes is None:
            raise UsageError("collect() needs rows=, steps= or episodes=")
        if not self._ready:
            self.reset()
        if rows is None and episodes is None:
            rows = -(-steps // self.env.num)  # type: ignore[operator]
        limits = Limits(steps, episodes)
        if rows is not None:
            return self._fill(rows, limits)
        parts = []
        while limits.episodes > 0 and (limits.steps is None or limits.steps > 0):  # type: ignore[operator]
            parts.append(self._fill(32, limits))
            for name, chunk in parts[-1].items():
                parts[-1][name] = copied(chunk)
        whole = {name: joined([part[name] for part in parts]) for name in self.rows}
        return Collected(whole, sum(part.steps for part in parts), [end for part in parts for end in part.episodes])

    def _fill(self, rows: int, limits: Limits) -> Collected:
        """One chunk; `limits` is left with what may still be collected."""
        if self.on_begin is not None:
            self.on_begin(self)
        for mine in self.rows.values():
            mine.begin(rows, self.greedy)
        ended: list[EpisodeEnd] = []
        used = steps = 0
        while used < rows and limits.steps != 0 and limits.episodes != 0:
            taken, ends = self._row(used, limits)
            used, steps, ended = used + 1, steps + taken, ended + ends
            limits.steps = None if limits.steps is None else limits.steps - taken
            limits.episodes = None if limits.episodes is None else limits.episodes - len(ends)
        turn, obs = self.env.acting, self.env.obs
        for name, mine in self.rows.items():
            mine.see(obs, self._seated(name, turn))
        return Collected({name: mine.chunk(used, self.index) for name, mine in self.rows.items()}, steps, ended)

    def _row(self, t: int, limits: Limits) -> tuple[int, list[EpisodeEnd]]:
        """One step of all envs: how many were stepped, and what ended."""
        env, started = self.env, perf_counter_ns()
        turn = {agent: acting.copy() for agent, acting in env.acting.items()}
        action = self._act(turn)
        acted = perf_counter_ns()
        limit = None if limits.steps is None or limits.steps >= env.num else limits.steps
        out = env.step(action, limit, limits.episodes)
        self.time_act += acted - started
        self.time_env += perf_counter_ns() - acted
        stepped = np.ones(env.num, bool)
        if limit is not None or limits.episodes is not None:
            stepped = self._stepped(turn, out)
        for name, mine in self.rows.items():
            mine.write(t, out.agents, {agent: self.seats.held(agent, name) for agent in mine.blocks})
        for end in out.ended:
            end.info["seats"] = self.seats.of(end.env)
            self.seats.draw(end.env)
            for mine in self.rows.values():
                mine.restart(end.env)
        if self.on_step is not None:
            self.on_step(self, self._summary(out, stepped))
        return int(np.count_nonzero(stepped)), out.ended

    def _act(self, turn: Turns) -> dict[str, np.ndarray]:
        obs = self.env.obs
        action: dict[str, np.ndarray] = {}
        for name, rows in self.rows.items():
            asked = self._seated(name, turn)
            if not any(mine.any() for mine in asked.values()):
                continue
            given = rows.act(obs, asked, self.greedy)
            for agent, block in rows.blocks.items():
                if agent in action:
                    action[agent][asked[agent]] = given[block][asked[agent]]
                elif turn[agent].any():
                    action[agent] = given[block].copy()  # seats of others are overwritten when they act
        return action

    def _seated(self, player: str, turn: Turns) -> Turns:
        """Where the player must act."""
        return {agent: turn[agent] & self.seats.held(agent, player) for agent in self.rows[player].blocks}

    def _stepped(self, turn: Turns, out: MultiStep) -> np.ndarray:
        """bool [B]: envs that were stepped. In the others whoever acted must act again, and has no complete row."""
        stepped = np.zeros(self.env.num, bool)
        for agent, was in turn.items():
            stepped |= was & (out.agents[agent].valid | ~self.env.acting[agent])
        for name, rows in self.rows.items():
            again = [asked & ~stepped for asked in self._seated(name, turn).values()]
            rows.undo(np.flatnonzero(np.concatenate(again)))
        return stepped

    def _summary(self, out: MultiStep, stepped: np.ndarray) -> Step:
        """The step of the envs as a whole, for callbacks: rewards of all agents' complete rows, observations and infos by agent."""
        reward = np.stack([step.reward for step in out.agents.values()]).sum(0)
        terminated, truncated = np.zeros(self.env.num, bool), np.zeros(self.env.num, bool)
        for end in out.ended:
            terminated[end.env], truncated[end.env] = end.terminated, end.truncated
        infos = [
            {agent: step.infos[i] for agent, step in out.agents.items() if step.infos and step.valid[i]}
            for i in range(self.env.num)
        ]
        return Step(self.env.obs, reward, terminated, truncated, stepped, ended=out.ended, infos=infos)

    def state(self) -> dict[str, Any]:
        if not self._ready:
            self.reset()
        now = {"env": self.env.state(), "seats": self.seats.state(), "obs": tree_map(np.copy, self.env.obs)}
        now["acting"] = {agent: acting.copy() for agent, acting in self.env.acting.items()}
        return now | {"players": {name: rows.state() for name, rows in self.rows.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        self.env.restore(state["env"])
        self._ready = True
        self.seats.restore(state["seats"])
        for name, rows in self.rows.items():
            rows.restore(state["players"][name])
        for i in self._other(state):  # where the env could not be put back, another episode begins
            for rows in self.rows.values():
                rows.restart(i)

    def _other(self, state: dict[str, Any]) -> list[int]:
        """Envs that are not where the state left them."""
        other = np.zeros(self.env.num, bool)
        for agent, acting in self.env.acting.items():
            other |= np.asarray(state["acting"][agent]) != acting
            before = flatten(state["obs"][agent])
            for path, now in flatten(self.env.obs[agent]).items():
                other |= acting & (np.asarray(before[path]) != now).reshape(self.env.num, -1).any(1)
        return np.flatnonzero(other).tolist()

    def close(self) -> None:
        self.env.close()
