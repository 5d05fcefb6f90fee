"""Rows: the columns of one player in a collector.

A player has B columns for every agent it may ever sit for. It may act long before its row is complete, so what it saw
and did last is *held* in each column; every row of the buffer is a copy of what is held, and `valid` says in which one
it became complete. A hole therefore holds the observation that waits for its completion or is acted on next: the
successor of a row lies below it, as `Chunk` wants.

Most rows are *plain*: everybody acts, nothing starts, ends or is missing. Then only observations, outputs and rewards
are copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.acting.actor import Actor
from rookery.acting.frames import Frames
from rookery.core.chunk import Chunk, EpisodeEnd
from rookery.core.spec import stacked_spec, zeros
from rookery.core.tree import Tree, flatten, tree_copy_into, tree_map, tree_take
from rookery.envs.multi.env import MultiEnv, MultiStep
from rookery.run.collect.chunks import cut

FLAGS = ("terminated", "truncated", "first", "valid")
EVERYWHERE = np.array(True)
Asked = dict[str, np.ndarray] | None  # agent → bool [B]; None: everywhere


class Rows:
    """What one player sees, does and gets, with the actor that acts for it and its random stream."""

    def __init__(
        self,
        actor: Actor,
        rng: np.random.Generator | None,
        env: MultiEnv,
        agents: list[str],
        *,
        stacked: bool = False,
    ):
        """`stacked`: chunks hold stacked observations where the actor sees several frames, else single frames."""
        spec, num = env.obs_spec[agents[0]], env.num
        self.actor, self.rng, self.waits = actor, rng, env.waits
        self.blocks = {agent: slice(k * num, (k + 1) * num) for k, agent in enumerate(agents)}
        self.columns = num * len(agents)
        self.obs = zeros(spec, self.columns)  # acted on last, or to be acted on
        self.first = np.ones(self.columns, bool)  # no row of the episode is complete
        self.held: dict[str, Tree] = {}  # what the rule returned for that observation: action, logp, state
        self.frames = Frames(spec, self.columns, actor.stack) if actor.stack > 1 else None
        self._stacked = stacked and actor.stack > 1
        self._spec = stacked_spec(spec, actor.stack) if self._stacked else spec
        self._no_finals = zeros(self._spec, 0), np.zeros((0, 2), np.int64)
        self._owned = False  # whether `held` is a copy of what the actor returned: its arrays may be used again
        self._starts = True  # whether any column is at the start of an episode
        self._plain = True  # the flags of the buffer say: no start, no end, no hole
        self._buffer: dict[str, Tree] = {}  # [T, C, …], reused while the length of chunks is the same
        self._finals: list[tuple[tuple[int, int], Tree]] = []  # ((row, column), true last observation)

    @property
    def seen(self) -> Tree:
        """What the actor sees [C, …]: the observations, or the last frames."""
        return self.obs if self.frames is None else self.frames.stacked

    # --- a row ---

    def act(self, turns: Asked, greedy: bool) -> Tree:
        """Actions for the env [C, …], to be read where the player was asked.

        All columns are computed, for a row's bits depend on the batch it is computed in; what was not asked for is
        forgotten.
        """
        if turns is None:
            self.held, self._owned = self.actor.act(self.seen, self.rng, self.first, greedy=greedy), False
            return self.actor.rule.to_env(self.held["action"])
        if not self._owned:
            self.held, self._owned = tree_map(np.copy, self.held), True
        where = np.concatenate([turns[agent] for agent in self.blocks])
        out = self.actor.act(self.seen, self.rng, self.first & where, greedy=greedy)  # who waits keeps its memory
        _put(self.held, out, where)
        if not where.all():
            self.actor.undo(np.flatnonzero(~where), out.get("state"))
        return self.actor.rule.to_env(self.held["action"])

    def undo(self, turns: Asked, stepped: np.ndarray, acting: dict[str, np.ndarray]) -> None:
        """Where the player was asked, the env made no step and asks again, it sees the same again; a busy env does
        not."""
        missed = [~stepped & acting[agent] & (EVERYWHERE if turns is None else turns[agent]) for agent in self.blocks]
        if len(columns := np.flatnonzero(np.concatenate(missed))):
            self.actor.undo(columns, self.held.get("state"))

    def write(self, t: int, out: MultiStep, seated: Asked) -> None:
        """Row t, from what the envs gave each agent and where the player sits for it."""
        buffer, marked = self._buffer, self._starts or seated is not None
        tree_copy_into(buffer["obs"], t, self.seen if self._stacked else self.obs)
        for key, value in self.held.items():
            tree_copy_into(buffer[key], t, value)
        for agent, block in self.blocks.items():
            step = out.agents[agent]
            buffer["reward"][t, block] = step.reward
            marked = marked or step.marked
        if marked:
            self._mark(t, out, seated)

    def _mark(self, t: int, out: MultiStep, seated: Asked) -> None:
        """The flags of a row in which something starts, ends or is missing."""
        self._plain, buffer, cuts = False, self._buffer, []
        buffer["first"][t] = self.first
        for agent, block in self.blocks.items():
            step, mine = out.agents[agent], EVERYWHERE if seated is None else seated[agent]
            buffer["valid"][t, block] = valid = step.valid & mine
            buffer["terminated"][t, block], buffer["truncated"][t, block] = (
                step.terminated & mine,
                step.truncated & mine,
            )
            if seated is not None:
                buffer["reward"][t, block] = np.where(valid, step.reward, np.float32(0.0))
            self._end(t, [(block.start + i, obs) for i, obs in step.final if seated is None or mine[i]])
            cuts += [block.start + i for i in step.cut if seated is None or mine[i]]
        self._finals += [end for column in cuts if (end := cut(buffer, t, column)) is not None]
        self.first &= ~buffer["valid"][t]  # a hole does not use up the start of an episode
        self.first |= buffer["terminated"][t] | buffer["truncated"][t]
        self.first[cuts] = True
        self._starts = bool(self.first.any())

    def _end(self, t: int, finals: list[tuple[int, Tree]]) -> None:
        """The episodes of these columns ended in row t with these observations."""
        frames, judge = self.frames, self.actor.judge
        stacked = finals if frames is None else [(column, frames.after(column, obs)) for column, obs in finals]
        if judge is not None and finals:
            judge.ended(t, self.seen, stacked, self._buffer["terminated"][t])
        self._finals += [((t, column), obs) for column, obs in (stacked if self._stacked else finals)]

    def see(self, obs: dict[str, Tree], turns: Asked, t: int | None = None) -> None:
        """What is acted on next, where the player is asked; after row t, or as at the start."""
        for agent, block in self.blocks.items():
            if turns is None:
                tree_copy_into(self.obs, block, obs[agent])
            elif turns[agent].any():
                _put(tree_take(self.obs, block), obs[agent], turns[agent])
        if self.frames is not None:
            moved = np.zeros(self.columns, bool) if t is None else self._buffer["valid"][t]
            self.frames.push(self.obs, self.first, moved)

    def restart(self, i: int) -> None:
        """Another episode begins in env i."""
        self._starts = True
        for block in self.blocks.values():
            self.first[block.start + i] = True

    # --- a chunk ---

    def begin(self, rows: int, greedy: bool) -> None:
        """Room for `rows` rows; the arrays of the last chunk are used again if it had as many."""
        self._finals = []
        if self.actor.judge is not None:
            self.actor.judge.begin()
        if not self._buffer or len(self._buffer["reward"]) != rows:
            self._allocate(rows, greedy)
        elif not self._plain:
            self._plain = True
            for name in FLAGS:
                self._buffer[name][:] = name == "valid"

    def _allocate(self, rows: int, greedy: bool) -> None:
        if not self.held:
            self._probe(greedy)
        longer = lambda x: np.zeros((rows, *x.shape), x.dtype)  # noqa: E731
        self._buffer = {"obs": zeros(self._spec, rows, self.columns), **tree_map(longer, self.held)}
        self._buffer |= {name: np.full((rows, self.columns), name == "valid") for name in FLAGS}
        for key in ("reward", "priority")[: 1 if self.actor.judge is None else 2]:
            self._buffer[key] = np.zeros((rows, self.columns), np.float32)
        self._plain = True

    def _probe(self, greedy: bool) -> None:
        """Shapes of what the rule returns, without disturbing the random stream and the memory."""
        before = self.actor.state()
        out = self.actor.act(self.seen, np.random.Generator(np.random.PCG64(0)), self.first, greedy=greedy)
        self.actor.restore(before)
        self.held, self._owned = tree_map(np.zeros_like, out), True

    def chunk(self, rows: int, collector: int, ended: list[EpisodeEnd]) -> Chunk:
        """The first `rows` rows; their arrays are used again by the next chunk."""
        whole = rows == len(self._buffer["reward"])
        filled = self._buffer if whole else tree_map(lambda x: x[:rows], self._buffer)
        if self.actor.judge is not None and rows:
            self.actor.judge.fill(filled, self.seen)
        final_obs, final_at = self._ordered_finals() if self._finals else self._no_finals
        last = self.seen if self._stacked else self.obs
        return Chunk(filled, last, final_obs, final_at, self.actor.version, collector, ended, self.waits)

    def _ordered_finals(self) -> tuple[Tree, np.ndarray]:
        """(final observations [K, …], their rows and columns [K, 2]) in order."""
        self._finals.sort(key=lambda final: final[0])
        at, obs = zip(*self._finals)
        return tree_map(lambda *xs: np.stack(xs), *obs), np.array(at, np.int64)

    # --- state ---

    def differs(self, obs: dict[str, Tree], turns: Asked) -> np.ndarray:
        """bool [B]: envs whose present observation is not what the player is about to act on."""
        other = np.zeros(self.columns // len(self.blocks), bool)
        for agent, block in self.blocks.items():
            before, mine = flatten(tree_take(self.obs, block)), EVERYWHERE if turns is None else turns[agent]
            for path, now in flatten(obs[agent]).items():
                other |= mine & (before[path] != now).reshape(len(other), -1).any(1)
        return other

    def state(self) -> dict[str, Any]:
        now: dict[str, Any] = {"obs": tree_map(np.copy, self.obs), "first": self.first.copy()}
        now["held"] = tree_map(np.copy, self.held) if self._owned and self.waits else {}  # {}: decided anew before use
        now |= {} if self.frames is None else self.frames.state()
        return now | ({"actor": saved} if (saved := self.actor.state()) else {})

    def restore(self, state: dict[str, Any]) -> None:
        tree_copy_into(self.obs, ..., tree_map(np.asarray, state["obs"]))
        self.held, self._owned, self._buffer = tree_map(np.array, state["held"]), True, {}
        self.first[:] = state["first"]
        self._starts = bool(self.first.any())
        self.actor.restore(state.get("actor", {}))
        if self.frames is not None:
            self.frames.restore(state)


def _put(own: Tree, new: Tree, where: np.ndarray) -> None:
    tree_map(lambda mine, theirs: mine.__setitem__(where, theirs[where]), own, new)
