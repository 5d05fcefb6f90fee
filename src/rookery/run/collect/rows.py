"""PlayerRows: the columns of one player in a collector with several agents.

A player has B columns for every agent it may ever sit for. It acts long before its row is complete, so what it saw and did last is
*held* in each column; every row of the buffer is a copy of what is held, and `valid` says in which one it became complete. A hole therefore
holds the observation that waits for its completion or is acted on next: the successor of a row lies below it, as `Chunk` wants.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.acting.actor import Actor
from rookery.core.chunk import Chunk
from rookery.core.spec import zeros
from rookery.core.tree import Tree, tree_copy_into, tree_map, tree_take
from rookery.envs.vector import Step

FLAGS = ("terminated", "truncated", "first", "valid")


class PlayerRows:
    """What one player sees, does and gets."""

    def __init__(self, actor: Actor, rng: np.random.Generator | None, spec: Tree, agents: list[str], num: int):
        self.actor, self.rng, self.spec = actor, rng, spec
        self.blocks = {agent: slice(k * num, (k + 1) * num) for k, agent in enumerate(agents)}
        self.columns = num * len(agents)
        self.obs = zeros(spec, self.columns)  # acted on last, or to be acted on
        self.first = np.ones(self.columns, bool)  # no row of the episode is complete
        self.held: dict[str, Tree] = {}  # what the rule returned for that observation: action, logp, state
        self._buffer: dict[str, Tree] = {}
        self._finals: list[tuple[tuple[int, int], Tree]] = []

    def see(self, obs: dict[str, Tree], turn: dict[str, np.ndarray]) -> None:
        """What is acted on next, where it is the player's turn; agent → bool [B]."""
        for agent, block in self.blocks.items():
            if (mine := turn[agent]).any():
                _put(tree_take(self.obs, block), obs[agent], mine)

    def act(self, obs: dict[str, Tree], turn: dict[str, np.ndarray], greedy: bool) -> np.ndarray:
        """Actions for the env [C, …], to be read where it is the player's turn.

        All columns are computed, for a row's bits depend on the batch it is computed in; what was not asked for is forgotten.
        """
        self.see(obs, turn)
        asked = np.concatenate([turn[agent] for agent in self.blocks])
        out = self.actor.act(self.obs, self.rng, self.first & asked, greedy=greedy)  # who waits keeps its memory
        self.held = self.held or tree_map(np.zeros_like, out)
        _put(self.held, out, asked)
        if not asked.all():
            self.actor.undo(np.flatnonzero(~asked), out.get("state"))
        return self.actor.rule.to_env(out["action"])

    def undo(self, columns: np.ndarray) -> None:
        """The envs of these columns were not stepped: their observations will be seen again."""
        if len(columns):
            self.actor.undo(columns, self.held.get("state"))

    def begin(self, rows: int, greedy: bool) -> None:
        """Room for `rows` rows; the arrays of the last chunk are used again if it had as many."""
        self._finals = []
        if self.actor.judge is not None:
            self.actor.judge.begin()
        if not self.held:
            self._probe(greedy)
        if not self._buffer or len(self._buffer["reward"]) != rows:
            longer = lambda x: np.zeros((rows, *x.shape), x.dtype)  # noqa: E731
            self._buffer = {"obs": tree_map(longer, self.obs), **tree_map(longer, self.held)}
            self._buffer |= {name: np.zeros((rows, self.columns), bool) for name in FLAGS}
            for key in ("reward", "priority")[: 1 if self.actor.judge is None else 2]:
                self._buffer[key] = np.zeros((rows, self.columns), np.float32)

    def _probe(self, greedy: bool) -> None:
        """Shapes of what the rule returns, without disturbing the random stream and the memory."""
        before = self.actor.state()
        out = self.actor.act(self.obs, np.random.Generator(np.random.PCG64(0)), self.first, greedy=greedy)
        self.actor.restore(before)
        self.held = tree_map(np.zeros_like, out)

    def write(self, t: int, steps: dict[str, Step], seated: dict[str, np.ndarray]) -> None:
        """Row t, from what the envs gave each agent and where the player sat for it."""
        buffer = self._buffer
        tree_copy_into(buffer["obs"], t, self.obs)
        for key, value in self.held.items():
            tree_copy_into(buffer[key], t, value)
        buffer["first"][t] = self.first
        for agent, block in self.blocks.items():
            step, mine = steps[agent], seated[agent]
            valid = step.valid & mine
            buffer["valid"][t, block] = valid
            buffer["reward"][t, block] = np.where(valid, step.reward, np.float32(0.0))
            buffer["terminated"][t, block], buffer["truncated"][t, block] = (
                step.terminated & mine,
                step.truncated & mine,
            )
            finals = [(block.start + i, obs) for i, obs in step.final if mine[i]]
            self._finals += [((t, column), obs) for column, obs in finals]
            if finals and self.actor.judge is not None:
                self.actor.judge.ended(t, self.obs, finals, buffer["terminated"][t])
        ended = buffer["terminated"][t] | buffer["truncated"][t]
        self.first &= ~buffer["valid"][t]
        self.first |= ended

    def restart(self, i: int) -> None:
        """Another episode begins in env i."""
        for block in self.blocks.values():
            self.first[block.start + i] = True

    def chunk(self, rows: int, collector: int) -> Chunk:
        """The first `rows` rows; their arrays are used again by the next chunk."""
        filled = tree_map(lambda x: x[:rows], self._buffer)
        if self.actor.judge is not None and rows:
            self.actor.judge.fill(filled, self.obs)
        finals = sorted(self._finals, key=lambda final: final[0])
        at = np.array([place for place, _ in finals], np.int64).reshape(-1, 2)
        final_obs = (
            tree_map(lambda *parts: np.stack(parts), *(obs for _, obs in finals)) if finals else zeros(self.spec, 0)
        )
        return Chunk(filled, tree_map(np.copy, self.obs), final_obs, at, self.actor.version, collector)

    def state(self) -> dict[str, Any]:
        now = {"obs": tree_map(np.copy, self.obs), "first": self.first.copy(), "held": tree_map(np.copy, self.held)}
        return now | ({"actor": saved} if (saved := self.actor.state()) else {})

    def restore(self, state: dict[str, Any]) -> None:
        self.obs, self.held = (tree_map(np.array, state[name]) for name in ("obs", "held"))
        self.first = np.array(state["first"], bool)
        self.actor.restore(state.get("actor", {}))


def _put(own: Tree, new: Tree, where: np.ndarray) -> None:
    tree_map(lambda mine, given: mine.__setitem__(where, given[where]), own, new)
