"""Collector: steps a VectorEnv with its players' actors and fills [T, B] chunks, one per player. The same object in every mode.

Usable without a trainer: `Collector(env, actor, rng).collect(steps=1000)` or `collect(episodes=10)`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np

from rookery.acting.actor import Actor, Message
from rookery.acting.frames import Frames
from rookery.acting.players import MAIN, Seating
from rookery.core.chunk import Chunk, EpisodeEnd
from rookery.core.errors import UsageError
from rookery.core.spec import stacked_spec, zeros
from rookery.core.tree import Tree, flatten, tree_copy_into, tree_map, tree_take
from rookery.envs.vector import Step, VectorEnv
from rookery.run.chunks import Limits, copied, cut, joined, left, of_columns


class Collector:
    """One VectorEnv, one seating, one random stream for acting."""

    def __init__(
        self,
        env: VectorEnv,
        players: Actor | dict[str, Actor],
        rng: np.random.Generator,
        *,
        seating: Seating | None = None,
        greedy: bool = False,
        index: int = 0,
        stack_rows: bool = False,
    ):
        self.env, self.rng, self.greedy, self.index = env, rng, greedy, index
        self.players = {MAIN: players} if isinstance(players, Actor) else dict(players)
        self.seating = seating or Seating.single(env.num, next(iter(self.players)))
        self.seating.check(list(self.players))
        self.columns = self.seating.columns()
        self._only = self.players[next(iter(self.columns))] if len(self.columns) == 1 else None  # sits in every seat
        self.obs: Tree = None  # [B, …], own copy
        self.first = np.ones(env.num, bool)
        self.on_begin: Callable[[Collector], None] | None = None  # before the rows of a chunk
        self.on_step: Callable[[Collector, Step], None] | None = None  # hook of callbacks that want every step
        self.time_env = self.time_act = 0  # nanoseconds
        self._rows: dict[str, Tree] | None = None  # preallocated [T, B, …], reused when the chunk's length is the same
        self._plain = True  # the flags of these rows say: no start, no end, no hole
        self._starts = True  # whether any column is at the start of an episode
        stack = max(actor.stack for actor in self.players.values())
        self.frames = Frames(env.obs_spec, env.num, stack) if stack > 1 else None
        self._stack_rows = stack_rows and stack > 1  # the rows of chunks hold stacked observations, else single frames
        self._row_spec = stacked_spec(env.obs_spec, stack) if self._stack_rows else env.obs_spec
        self._no_finals = zeros(self._row_spec, 0), np.zeros((0, 2), np.int64)

    def reset(self) -> None:
        """Start episode 0 in every env."""
        self.obs = tree_map(np.copy, self.env.reset())
        self._begin(np.ones(self.env.num, bool))
        if self.frames is not None:
            self.frames.push(self.obs, self.first)

    def _begin(self, first: np.ndarray) -> None:
        self.first, self._starts = first, bool(first.any())

    @property
    def _seen(self) -> Tree:
        """What the actors see [B, …]: the observations, or the last frames."""
        return self.obs if self.frames is None else self.frames.stacked

    def load(self, messages: dict[str, Message]) -> None:
        for player, message in messages.items():
            self.players[player].load(message)

    def collect(
        self, rows: int | None = None, *, steps: int | None = None, episodes: int | None = None
    ) -> dict[str, Chunk]:
        """One chunk per player: `rows` rows, or until `steps` steps or `episodes` episodes are done, whichever is first.

        The arrays of a chunk are reused by the next call with the same number of rows.
        """
        if rows is None and steps is None and episodes is None:
            raise UsageError("collect() needs rows=, steps= or episodes=")
        if self.obs is None:
            self.reset()
        if rows is None and episodes is None:
            rows = -(-steps // self.env.num)  # type: ignore[operator]
        if rows is not None:
            chunk, _ = self._fill(rows, Limits(steps, episodes))
            return self._by_player(chunk)
        return self._by_player(self._until(Limits(steps, episodes)))

    def _until(self, limits: Limits) -> Chunk:
        parts = []
        while (limits.episodes is None or limits.episodes > 0) and (limits.steps is None or limits.steps > 0):
            chunk, limits = self._fill(32, limits)
            parts.append(copied(chunk))
        return joined(parts)

    def _fill(self, rows: int, limits: Limits) -> tuple[Chunk, Limits]:
        buffer = self._buffer(rows)
        if self.on_begin is not None:
            self.on_begin(self)
        finals: list[tuple[tuple[int, int], Tree]] = []  # ((row, column), true last observation)
        ended: list[EpisodeEnd] = []
        used, limited = rows, limits.steps is not None or limits.episodes is not None
        for t in range(rows):
            if limited and (limits.steps == 0 or limits.episodes == 0):
                used = t
                break
            step = self._row(buffer, t, limits)
            if step.marked:
                finals += [((t, i), obs) for i, obs in step.final]
                finals += [end for i in step.cut if (end := cut(buffer, t, i)) is not None]
                ended += step.ended
            if limited:
                limits = left(limits, step)
        filled = buffer if used == rows else tree_map(lambda x: x[:used], buffer)
        final_obs, final_at = self._stacked(finals) if finals else self._no_finals
        version = self.players[next(iter(self.columns))].version
        last = self._seen if self._stack_rows else self.obs
        return Chunk(filled, last, final_obs, final_at, version, self.index, ended), limits

    def _row(self, buffer: dict[str, Tree], t: int, limits: Limits) -> Step:
        started = perf_counter_ns()
        out, env_action = self._act()
        acted = perf_counter_ns()
        limit = None if limits.steps is None or limits.steps >= self.env.num else limits.steps
        step = self.env.step(env_action, limit, limits.episodes)
        self.time_act += acted - started
        self.time_env += perf_counter_ns() - acted
        tree_copy_into(buffer["obs"], t, self._seen if self._stack_rows else self.obs)
        for key, value in out.items():
            tree_copy_into(buffer[key], t, value)
        buffer["reward"][t] = step.reward
        if self._starts or step.marked:
            self._mark(buffer, t, step)
        tree_copy_into(self.obs, ..., step.obs)
        if self.frames is not None:
            if self._stack_rows and step.final:
                step.final = [(i, self.frames.after(i, obs)) for i, obs in step.final]
            self.frames.push(self.obs, self.first, step.valid)
        if self.on_step is not None:
            self.on_step(self, step)
        return step

    def _mark(self, buffer: dict[str, Tree], t: int, step: Step) -> None:
        """The flags of a row in which something starts, ends or is missing."""
        self._plain = False
        buffer["terminated"][t] = step.terminated
        buffer["truncated"][t] = step.truncated
        buffer["first"][t] = self.first
        buffer["valid"][t] = step.valid
        holes = np.flatnonzero(~step.valid)
        if len(holes) and "state" in buffer:
            self._forget(holes, tree_take(buffer["state"], t))
        self.first &= ~step.valid  # a hole does not use up the start of an episode
        self.first |= step.terminated | step.truncated
        self.first[step.cut] = True
        self._starts = bool(self.first.any())

    def _forget(self, holes: np.ndarray, before: Tree) -> None:
        """What was seen in a hole is seen again: memories go back to the state before it."""
        for player, columns in self.columns.items():
            memory, mine = self.players[player].memory, np.flatnonzero(np.isin(columns, holes))
            if memory is not None and len(mine):
                memory.put(tree_take(before, columns[mine]), mine)

    def _act(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        actor = self._only
        if actor is not None:
            out = actor.act(self._seen, self.rng, self.first, greedy=self.greedy)
            return out, actor.rule.to_env(out["action"])
        merged: dict[str, np.ndarray] = {}
        env_action: np.ndarray | None = None
        for player, columns in self.columns.items():
            actor = self.players[player]
            out = actor.act(tree_take(self._seen, columns), self.rng, self.first[columns], greedy=self.greedy)
            given = actor.rule.to_env(out["action"])
            if env_action is None:
                env_action = np.zeros((self.env.num, *given.shape[1:]), given.dtype)
            env_action[columns] = given
            for key, value in out.items():
                if key not in merged:
                    merged[key] = tree_map(lambda x: np.zeros((self.env.num, *x.shape[1:]), x.dtype), value)
                tree_copy_into(merged[key], columns, value)
        assert env_action is not None
        return merged, env_action

    def _buffer(self, rows: int) -> dict[str, Tree]:
        if self._rows is None or len(self._rows["reward"]) != rows:
            num = self.env.num
            sample = self._shapes()
            flags = {key: np.zeros((rows, num), bool) for key in ("terminated", "truncated", "first", "valid")}
            self._rows = {"obs": zeros(self._row_spec, rows, num), **sample(rows), **flags}
            self._rows["reward"] = np.zeros((rows, num), np.float32)
            self._plain = False
        if not self._plain:
            self._plain = True
            for key in ("terminated", "truncated", "first"):
                self._rows[key][:] = False
            self._rows["valid"][:] = True
        return self._rows

    @staticmethod
    def _stacked(finals: list[tuple[tuple[int, int], Tree]]) -> tuple[Tree, np.ndarray]:
        """(final observations [K, …], their rows and columns [K, 2]) in order."""
        finals.sort(key=lambda final: final[0])
        at, obs = zip(*finals)
        return tree_map(lambda *xs: np.stack(xs), *obs), np.array(at, np.int64)

    def _shapes(self) -> Callable[[int], dict[str, np.ndarray]]:
        """Arrays for what the rules return, without disturbing random streams and memories."""
        probe = np.random.Generator(np.random.PCG64(0))
        real, self.rng = self.rng, probe
        before = {player: actor.state() for player, actor in self.players.items()}
        try:
            out, _ = self._act()
        finally:
            self.rng = real
            for player, actor in self.players.items():
                actor.restore(before[player])
        return lambda rows: tree_map(lambda x: np.zeros((rows, *x.shape), x.dtype), out)

    def _by_player(self, chunk: Chunk) -> dict[str, Chunk]:
        if len(self.columns) == 1:
            return {next(iter(self.columns)): chunk}
        return {
            player: of_columns(chunk, columns, self.players[player].version) for player, columns in self.columns.items()
        }

    def state(self) -> dict[str, Any]:
        if self.obs is None:
            self.reset()
        actors = {player: saved for player, actor in self.players.items() if (saved := actor.state())}
        now = {"env": self.env.state(), "obs": tree_map(np.copy, self.obs), "first": self.first.copy()}
        now |= {"actors": actors} if actors else {}
        return now if self.frames is None else now | self.frames.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.env.restore(state["env"])
        self.obs = tree_map(np.copy, self.env.obs)
        first = np.array(state["first"], bool) | self.env.renewed
        for path, now in flatten(self.obs).items():  # where the env could not be put back, another episode begins
            first |= (np.asarray(flatten(state["obs"])[path]) != now).reshape(self.env.num, -1).any(1)
        self._begin(first)
        for player, actor in self.players.items():
            actor.restore(state.get("actors", {}).get(player, {}))
        if self.frames is not None:
            self.frames.restore(state)
            self.frames.push(self.obs, self.first, np.zeros(self.env.num, bool))  # another episode has other frames

    def close(self) -> None:
        self.env.close()
