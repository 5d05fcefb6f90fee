"""Collector: steps a VectorEnv with one actor in every seat and fills [T, B] chunks. The same object in every mode.

Several players are seated by `rookery.run.collect.multicollector`.

Usable without a trainer: `Collector(env, actor, rng).collect(steps=1000)` or `collect(episodes=10)`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np

from rookery.acting.actor import Actor, Message
from rookery.acting.frames import Frames
from rookery.acting.players import MAIN
from rookery.core.chunk import Chunk, EpisodeEnd
from rookery.core.errors import UsageError
from rookery.core.spec import stacked_spec, zeros
from rookery.core.tree import Tree, flatten, tree_copy_into, tree_map, tree_take
from rookery.envs.vector import Step, VectorEnv
from rookery.run.collect.chunks import Limits, copied, cut, joined, left


class Collector:
    """One VectorEnv, one actor, one random stream for acting."""

    def __init__(
        self,
        env: VectorEnv,
        actor: Actor,
        rng: np.random.Generator,
        *,
        greedy: bool = False,
        index: int = 0,
        stack_rows: bool = False,
    ):
        self.env, self.rng, self.greedy, self.index = env, rng, greedy, index
        self.actor = actor  # sits in every seat
        self.obs: Tree = None  # [B, …], own copy
        self.first = np.ones(env.num, bool)
        self.on_begin: Callable[[Collector], None] | None = None  # before the rows of a chunk
        self.on_step: Callable[[Collector, Step], None] | None = None  # hook of callbacks that want every step
        self.time_env = self.time_act = 0  # nanoseconds
        self._rows: dict[str, Tree] | None = None  # preallocated [T, B, …], reused when the chunk's length is the same
        self._plain = True  # the flags of these rows say: no start, no end, no hole
        self._starts = True  # whether any column is at the start of an episode
        self.frames = Frames(env.obs_spec, env.num, actor.stack) if actor.stack > 1 else None
        self._stack_rows = (
            stack_rows and actor.stack > 1
        )  # the rows of chunks hold stacked observations, else single frames
        self._row_spec = stacked_spec(env.obs_spec, actor.stack) if self._stack_rows else env.obs_spec
        self._held: dict[str, Tree] | None = None  # what was decided for envs that are still busy (env.workers=async)
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
        """What the actor sees [B, …]: the observations, or the last frames."""
        return self.obs if self.frames is None else self.frames.stacked

    def load(self, messages: dict[str, Message]) -> None:
        self.actor.load(messages[MAIN])

    def collect(
        self, rows: int | None = None, *, steps: int | None = None, episodes: int | None = None
    ) -> dict[str, Chunk]:
        """{"main": chunk} of `rows` rows, or until `steps` steps or `episodes` episodes are done, whichever is first.

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
            return {MAIN: chunk}
        return {MAIN: self._until(Limits(steps, episodes))}

    def _until(self, limits: Limits) -> Chunk:
        parts = []
        while (limits.episodes is None or limits.episodes > 0) and (limits.steps is None or limits.steps > 0):
            chunk, limits = self._fill(32, limits)
            parts.append(copied(chunk))
        return joined(parts)

    def _fill(self, rows: int, limits: Limits) -> tuple[Chunk, Limits]:
        buffer, judge = self._buffer(rows), self.actor.judge
        if judge is not None:
            judge.begin()
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
        if judge is not None and used:
            judge.fill(filled, self._seen)
        final_obs, final_at = self._stacked(finals) if finals else self._no_finals
        last = self._seen if self._stack_rows else self.obs
        return Chunk(filled, last, final_obs, final_at, self.actor.version, self.index, ended), limits

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
        if step.final and self.actor.judge is not None:
            self._judge(t, step)
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

    def _judge(self, t: int, step: Step) -> None:
        """Show the final observations of row t to the judge, as the actor would have seen them."""
        frames = self.frames
        finals = step.final if frames is None else [(i, frames.after(i, obs)) for i, obs in step.final]
        self.actor.judge.ended(t, self._seen, finals, step.terminated)

    def _mark(self, buffer: dict[str, Tree], t: int, step: Step) -> None:
        """The flags of a row in which something starts, ends or is missing."""
        self._plain = False
        buffer["terminated"][t] = step.terminated
        buffer["truncated"][t] = step.truncated
        buffer["first"][t] = self.first
        buffer["valid"][t] = step.valid
        holes = np.flatnonzero(~step.valid)
        if len(holes):  # what was seen in a hole is seen again
            self.actor.undo(holes, tree_take(buffer["state"], t) if "state" in buffer else None)
        self.first &= ~step.valid  # a hole does not use up the start of an episode
        self.first |= step.terminated | step.truncated
        self.first[step.cut] = True
        self._starts = bool(self.first.any())

    def _act(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        out = self.actor.act(self._seen, self.rng, self.first, greedy=self.greedy)
        if self.env.busy is not None:
            out = self._decided(out, self.env.busy)
        return out, self.actor.rule.to_env(out["action"])

    def _decided(self, out: dict[str, np.ndarray], busy: np.ndarray) -> dict[str, np.ndarray]:
        """A busy env is stepped with what was decided when its step began; the others with what is decided now."""
        if self._held is None:
            self._held = tree_map(np.copy, out)
        free = ~busy
        tree_map(lambda held, new: held.__setitem__(free, new[free]), self._held, out)
        return self._held

    def _buffer(self, rows: int) -> dict[str, Tree]:
        if self._rows is None or len(self._rows["reward"]) != rows:
            num = self.env.num
            sample = self._shapes()
            flags = {key: np.zeros((rows, num), bool) for key in ("terminated", "truncated", "first", "valid")}
            self._rows = {"obs": zeros(self._row_spec, rows, num), **sample(rows), **flags}
            for key in ("reward", "priority")[: 1 if self.actor.judge is None else 2]:
                self._rows[key] = np.zeros((rows, num), np.float32)
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
        before = self.actor.state()
        try:
            out, _ = self._act()
        finally:
            self.rng = real
            self.actor.restore(before)
        return lambda rows: tree_map(lambda x: np.zeros((rows, *x.shape), x.dtype), out)

    def state(self) -> dict[str, Any]:
        if self.obs is None:
            self.reset()
        actor = self.actor.state()
        now = {"env": self.env.state(), "obs": tree_map(np.copy, self.obs), "first": self.first.copy()}
        now |= {"actors": {MAIN: actor}} if actor else {}
        return now if self.frames is None else now | self.frames.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.env.restore(state["env"])
        self.obs = tree_map(np.copy, self.env.obs)
        first = np.array(state["first"], bool) | self.env.renewed
        for path, now in flatten(self.obs).items():  # where the env could not be put back, another episode begins
            first |= (np.asarray(flatten(state["obs"])[path]) != now).reshape(self.env.num, -1).any(1)
        self._begin(first)
        self.actor.restore(state.get("actors", {}).get(MAIN, {}))
        if self.frames is not None:
            self.frames.restore(state)
            self.frames.push(self.obs, self.first, np.zeros(self.env.num, bool))  # another episode has other frames

    def close(self) -> None:
        self.env.close()
