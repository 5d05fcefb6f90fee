"""Collector: steps an env with its players and fills one [T, C] chunk per player. The same object in every mode.

    columns of a player   B for each agent it may sit for, agents in the order of the env
    a row                 one step of all envs; `valid` where a decision of the player became complete in it

Each player acts with a random stream of its own, so its numbers do not depend on who else is there. Counts are env
steps and episodes of envs.

It stores nothing: `Trainer.round` hands the chunks to the players, whose stores take them (`Player.store_chunk`).

Usable without a trainer: `Collector(env, actor, rng).collect(steps=1000)` or `collect(episodes=10)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np

from rookery.acting.actor import Actor, Message, Messages
from rookery.core.chunk import MAIN, Collected, EpisodeEnd
from rookery.core.errors import UsageError
from rookery.core.restoring import check_restored, restoring
from rookery.core.tree import Tree, tree_copy_into, tree_map, tree_take
from rookery.envs.multi.env import MultiEnv, MultiStep
from rookery.envs.multi.one_agent import at_table
from rookery.envs.vector import Step, VectorEnv
from rookery.run.collect.chunks import copied, joined
from rookery.run.collect.rows import Asked, Rows
from rookery.run.collect.seats import Chances, Seats


@dataclass(slots=True)
class Limits:
    """What may still be collected in this call, over all columns; None: unlimited."""

    steps: int | None = None
    episodes: int | None = None

    @property
    def reached(self) -> bool:
        """Whether nothing may be collected any more."""
        return (self.steps is not None and self.steps <= 0) or (self.episodes is not None and self.episodes <= 0)

    def take(self, steps: int, episodes: int) -> None:
        """So much was collected."""
        if self.steps is not None:
            self.steps -= steps
        if self.episodes is not None:
            self.episodes -= episodes


FOREVER = Limits()


class Collector:
    """One env, its seats, and the rows of every player. With one actor: the player `main` sits everywhere.

    Args:
        env: as `rookery.envs.builders` makes it, with B columns.
        actor: decides for the player `main`; or the rows of every player by name.
        rng: of the actor's draws; needed unless `greedy`.
        seats: who sits where; None: the only player sits everywhere.
        greedy: act as in evaluation.
        index: number of this collector; its chunks carry it.
    """

    def __init__(
        self,
        env: VectorEnv | MultiEnv,
        actor: Actor | dict[str, Rows],
        rng: np.random.Generator | None = None,
        *,
        seats: Seats | None = None,
        greedy: bool = False,
        index: int = 0,
    ):
        self.env, self.greedy, self.index = at_table(env), greedy, index
        agents = list(self.env.agents)
        self.seats = seats or Seats({agent: {MAIN: 1.0} for agent in agents}, self.env.num, None, noted=False)
        self.rows = actor if isinstance(actor, dict) else {MAIN: Rows(actor, rng, self.env, agents)}
        self.on_begin: Callable[[Collector], None] | None = None  # before the rows of a chunk
        self.on_step: Callable[[Collector, Step], None] | None = None  # hook of callbacks that want every step
        self.beat: Callable[[], None] | None = None  # after every row: whoever watches sees that it moves
        self.time_env = self.time_act = 0  # nanoseconds
        self._note_seats()
        self._asked: dict[str, Asked] = {}  # player → where it must act next
        self._everywhere = False  # everybody, in every env
        self._ready = False

    def _note_seats(self) -> None:
        self._fixed = {name: not self.seats.changing(name) for name in self.rows}
        self._all_fixed = all(self._fixed.values())
        for name, rows in self.rows.items():
            rows.waits = rows.waits or not self._fixed[name]  # who is not always seated waits as well

    def add(self, name: str, rows: Rows, chances: Chances, rng: np.random.Generator | None) -> None:
        """Another player, who may sit from the next episodes on; `rng` draws seats where nobody had to before."""
        self.rows[name] = rows
        self.seats.extend(chances, rng)
        self._note_seats()
        if self._ready:
            self._look()
            rows.see(self.env.obs, self._asked[name])

    @property
    def actor(self) -> Actor:
        """That of the first player."""
        return next(iter(self.rows.values())).actor

    def reset(self) -> None:
        """Start episode 0 in every env."""
        self.env.reset()
        self._look()
        for name, rows in self.rows.items():
            for i in range(self.env.num):
                rows.restart(i)
            rows.see(self.env.obs, self._asked[name])
        self._ready = True

    def load(self, messages: dict[str, Message]) -> None:
        for player, message in messages.items():
            self.rows[player].actor.load(message)
        if isinstance(messages, Messages) and messages.seating is not None:
            self.seats.change(messages.seating)

    def collect(self, rows: int | None = None, *, steps: int | None = None, episodes: int | None = None) -> Collected:
        """player → chunk of `rows` rows, or until `steps` env steps or `episodes` episodes are done, whichever is
        first.

        The arrays of a chunk are reused by the next call with the same number of rows.
        """
        if rows is None and steps is None and episodes is None:
            raise UsageError("collect() needs rows=, steps= or episodes=")
        if not self._ready:
            self.reset()
        if rows is None and episodes is None:
            rows = -(-steps // self.env.num)  # type: ignore[operator]
        limits = FOREVER if steps is None and episodes is None else Limits(steps, episodes)
        if rows is not None:
            return self._fill(rows, limits)
        parts = []
        while not limits.reached:
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
        used, steps, bounded = 0, 0, limits is not FOREVER
        while used < rows and not (bounded and limits.reached):
            out = self._row(used, limits)
            made = self.env.num if out.stepped is None else int(np.count_nonzero(out.stepped))
            used, steps = used + 1, steps + made
            ended += out.ended
            if bounded:
                limits.take(made, len(out.ended))
        return Collected({name: mine.chunk(used, self.index, ended) for name, mine in self.rows.items()}, steps, ended)

    def play(self) -> list[EpisodeEnd]:
        """One row of which nothing is kept: the episodes that ended in it."""
        for mine in self.rows.values():
            mine.begin(1, self.greedy)
        return self._row(0, FOREVER).ended

    def _row(self, t: int, limits: Limits) -> MultiStep:
        """One step of all envs."""
        env, started = self.env, perf_counter_ns()
        action = self._act()
        acted = perf_counter_ns()
        limit = None if limits.steps is None or limits.steps >= env.num else limits.steps
        out = env.step(action, limit, limits.episodes)
        self.time_act += acted - started
        self.time_env += perf_counter_ns() - acted
        for name, mine in self.rows.items():
            if out.stepped is not None:
                mine.undo(self._asked[name], out.stepped, env.acting)
            mine.write(t, out, None if self._fixed[name] else self.seats.of_player(name))
        if out.ended:
            self._end(out.ended)
        if not (self._everywhere and env.everyone):
            self._look()
        for name, mine in self.rows.items():
            mine.see(env.obs, self._asked[name], t)
        if self.on_step is not None:
            self.on_step(self, env.summary(out))
        if self.beat is not None:
            self.beat()
        return out

    def _look(self) -> None:
        """Where each player must act next."""
        env = self.env
        self._everywhere = env.everyone and self._all_fixed
        if self._everywhere:
            self._asked = dict.fromkeys(self.rows)
            return
        for name, mine in self.rows.items():
            if self._fixed[name]:
                self._asked[name] = {agent: env.acting[agent].copy() for agent in mine.blocks}
            else:
                self._asked[name] = {agent: env.acting[agent] & self.seats.held(agent, name) for agent in mine.blocks}

    def _act(self) -> dict[str, Tree]:
        """agent → actions [B, …] of all who must act somewhere; players who sit nowhere are not computed."""
        action: dict[str, Tree] = {}
        for name, mine in self.rows.items():
            turns = self._asked[name]
            if turns is not None and mine.waits and not any(where.any() for where in turns.values()):
                continue
            decided = mine.act(turns, self.greedy)
            for agent, block in mine.blocks.items():
                own = decided[block] if decided.__class__ is not dict else tree_take(decided, block)
                if turns is None or (self._fixed[name] and turns[agent].any()):
                    action[agent] = own
                elif agent in action:
                    tree_copy_into(action[agent], turns[agent], tree_take(own, turns[agent]))
                elif self.env.acting[agent].any():
                    action[agent] = tree_map(np.copy, own)  # seats of others are overwritten when they act
        return action

    def _end(self, ended: list[EpisodeEnd]) -> None:
        """Whoever sits in these envs is noted; then everybody is seated anew."""
        for end in ended:
            end.info |= self.seats.note(end)
            self.seats.draw(end.env, end.episode + 1)
            for mine in self.rows.values():
                mine.restart(end.env)

    def state(self) -> dict[str, Any]:
        if not self._ready:
            self.reset()
        acting = {agent: acting.copy() for agent, acting in self.env.acting.items()}
        players = {name: rows.state() for name, rows in self.rows.items()}
        return {"env": self.env.state(), "seats": self.seats.state(), "acting": acting, "players": players}

    def restore(self, state: dict[str, Any]) -> None:
        with restoring(f"pool/{self.index}"):
            if self._restore(state) and self.env.exactness == "exact":
                check_restored(state, self.state(), f"pool/{self.index}")

    def _restore(self, state: dict[str, Any]) -> bool:
        """Whether every env goes on with the episode that was saved."""
        self.env.restore(state["env"])
        self._ready = True
        self.seats.restore(state["seats"])
        self._look()
        other = self.env.renewed.copy()  # where the env could not be put back, another episode begins
        for agent, acting in self.env.acting.items():
            other |= np.asarray(state["acting"][agent]) != acting
        for name, rows in self.rows.items():
            rows.restore(state["players"][name])
            other |= rows.differs(self.env.obs, self._asked[name])
        for name, rows in self.rows.items():
            for i in np.flatnonzero(other):
                rows.restart(int(i))
            rows.see(self.env.obs, self._asked[name])
        return not other.any()

    def close(self) -> None:
        self.env.close()
