"""Policy: a trained actor in a user's own loop: `policy(Batch(obs=[obs])).action[0]`."""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.acting.actor import Actor
from rookery.acting.frames import Frames
from rookery.core.batch.batch import Batch
from rookery.core.tree import Tree, leaves, tree_map


class Policy:
    """Acts greedily, or (`greedy=False`) as in training with its own random stream.

    A policy with memory, or with stacked frames (env.stack; it is given single ones), remembers from call to call, per
    row of the batch: pass `first` (true where an episode begins) in the batch, or call `reset()`.
    """

    def __init__(self, actor: Actor, obs_spec: Tree, action_spec: Tree, seed: int = 0):
        self.actor, self.obs_spec, self.action_spec = actor, obs_spec, action_spec
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self._frames: Frames | None = None
        self._reset: Any = None  # rows that begin anew at the next call: True for all, or indices

    def __call__(self, batch: Any, *, greedy: bool = True) -> Batch:
        """`batch.obs` [N, …] → Batch(action=[N, …]) as the env wants it; the parts of a Tuple are called "0", "1", …"""
        obs = self.cast(batch["obs"])
        first = self._first(len(leaves(obs)[0]), batch.get("first", None))
        if self.actor.stack > 1:
            obs = self._stacked(obs, first)
        out = self.actor.act(obs, self.rng, first, greedy=greedy)
        action = self.actor.rule.to_env(out["action"])
        action = tree_map(lambda leaf, x: x + leaf.start if leaf.start else x, self.action_spec, action)
        return Batch(action=action, **{k: v for k, v in out.items() if k not in ("action", "state")})

    def reset(self, seats: Any = None) -> None:
        """Forget what was seen, in all rows or in these."""
        if seats is None or self._reset is True:
            self._reset = True
        else:
            rows = np.asarray(seats)
            self._reset = [*(self._reset or []), *(np.flatnonzero(rows) if rows.dtype == bool else np.atleast_1d(rows))]

    def _first(self, rows: int, starts: Any) -> np.ndarray | None:
        """Where an episode begins: as the batch says, and where `reset` was called since."""
        if self._reset is None:
            return None if starts is None else np.asarray(starts, bool)
        first, again, self._reset = np.zeros(rows, bool), self._reset, None
        first[slice(None) if again is True else again] = True
        return first if starts is None else first | np.asarray(starts, bool)

    def _stacked(self, obs: Tree, first: Any) -> Tree:
        rows = len(leaves(obs)[0])
        if self._frames is None or len(leaves(self._frames.stacked)[0]) != rows:
            self._frames, first = Frames(self.obs_spec, rows, self.actor.stack), np.ones(rows, bool)
        return self._frames.push(obs, first)

    def cast(self, obs: Any) -> Tree:
        """Arrays of the dtypes the networks were built for; a tuple observation may be given as a tuple."""

        def pick(spec: Tree, value: Any) -> Tree:
            if isinstance(spec, dict):
                named = dict(enumerate(value)) if isinstance(value, tuple | list) else value
                return {k: pick(s, named[k] if k in named else named[int(k)]) for k, s in spec.items()}
            return np.ascontiguousarray(value, dtype=spec.dtype)  # torch takes no reversed arrays

        arrays = pick(self.obs_spec, obs)
        return tree_map(lambda x, s: x - s.start if s.kind == "discrete" else x, arrays, self.obs_spec)
