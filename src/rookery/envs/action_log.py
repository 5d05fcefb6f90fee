"""Putting an env back where it was: replaying its actions since the reset, or handing it its own snapshot.

`episode` (any env that is deterministic given the seed of `reset`): seed + actions since the reset.
`snapshot` (documented protocol): every layer of the env that has state offers

    snapshot() -> dict of arrays and JSON values         all of it, the random generator included; changes nothing
    restore_snapshot(state) -> None

A layer is an env or a wrapper; a wrapper's snapshot covers that wrapper alone, or with `snapshot_is_whole = True` all
inside. TimeLimit is known, as are stateless wrappers. If any other wrapper is around the env, its state would be lost,
so the env is replayed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers as known

from rookery.core.errors import CheckpointError
from rookery.core.tree import Tree, leaves, tree_map, tree_take

OTHER_ENGINE = "written with another engine: resume with the env.engine and env.workers it began with"
ENDED = "it ended earlier than before, the env is not deterministic given its seed"
LONGEST = 2**20  # actions kept per episode; beyond that, replaying would take longer than it is worth
_STATELESS = (known.PassiveEnvChecker, known.OrderEnforcing, known.TransformObservation, known.TransformReward)


class ActionLog:
    """The actions of every env's running episode, as the algorithm gave them."""

    def __init__(self, spec: Tree, num: int, forgotten: Callable[[int], None]):
        self._spec = spec
        self._buffers = [self._empty(64) for _ in range(num)]
        self._sizes = [64] * num
        self._plain = not isinstance(spec, dict)
        self._forgotten = forgotten  # told which env's episode became too long

    def add(self, i: int, n: int, action: Tree) -> None:
        """action [B, …] holds the n-th action of env i's episode in its row i."""
        if n >= self._sizes[i] and not self._grow(i, n):
            return
        if self._plain:
            self._buffers[i][n] = action[i]
        else:
            tree_map(lambda buffer, rows: buffer.__setitem__(n, rows[i]), self._buffers[i], action)

    def extend(self, i: int, n: int, actions: Tree) -> None:
        """actions [K, …] are those of env i's episode from the n-th on."""
        stop = n + len(leaves(actions)[0])
        while stop > self._sizes[i]:
            if not self._grow(i, self._sizes[i] if n <= self._sizes[i] else n):
                return
        tree_map(lambda buffer, rows: buffer.__setitem__(slice(n, stop), rows), self._buffers[i], actions)

    def of(self, i: int, n: int) -> Tree | None:
        """A copy of the first n actions, or None if they are no longer all known."""
        return None if n > self._sizes[i] else tree_map(lambda buffer: buffer[:n].copy(), self._buffers[i])

    def load(self, i: int, actions: Tree) -> Tree:
        """Take over saved actions; returns them with the log's dtypes."""
        n = len(leaves(actions)[0])
        while n > self._sizes[i]:
            self._grow(i, self._sizes[i])
        for buffer, saved in zip(leaves(self._buffers[i]), leaves(tree_map(lambda _, x: x, self._spec, actions))):
            buffer[:n] = np.asarray(saved)
        return self.of(i, n)

    def _grow(self, i: int, n: int) -> bool:
        size = self._sizes[i]
        if size >= LONGEST:
            if n == size:
                self._forgotten(i)
            return False
        larger = self._empty(2 * size)
        for new, old in zip(leaves(larger), leaves(self._buffers[i])):
            new[:size] = old
        self._buffers[i], self._sizes[i] = larger, 2 * size
        return True

    def _empty(self, size: int) -> Tree:
        return tree_map(lambda leaf: np.zeros((size, *leaf.shape), leaf.dtype), self._spec)


class Batches:
    """Actions of all envs that were not logged yet: steps in which everybody acted everywhere. To log each action by
    itself would cost as much as to step a small env."""

    MOST = 64  # steps

    def __init__(self, logs: dict[str, ActionLog], num: int):
        self._logs, self._steps = logs, list[dict[str, Tree]]()
        self._since = [0] * num  # where the running episode of each env begins among them

    def note(self, action: dict[str, Tree]) -> bool:
        """A step of all envs; whether there are so many that they should be logged."""
        self._steps.append({agent: tree_map(np.array, rows) for agent, rows in action.items()})
        return len(self._steps) >= self.MOST

    def begin(self, i: int) -> None:
        """Another episode begins in env i: what came before it need not be known."""
        self._since[i] = len(self._steps)

    def forget(self) -> None:
        self._steps, self._since = [], [0] * len(self._since)

    def log(self, tables: Sequence[Any], stepped: int) -> None:
        """Log them all. `tables` know how often everybody acted in the running episodes; `stepped`: so many envs made
        the last step."""
        if not self._steps:
            return
        for agent in self._steps[0]:
            rows = tree_map(lambda *each: np.stack(each), *(step[agent] for step in self._steps))
            for i, since in enumerate(self._since):
                stop = len(self._steps) - (i >= stepped)
                if stop > since:
                    done = tables[i].seats[agent].actions - (stop - since)
                    self._logs[agent].extend(i, done, tree_take(rows, (slice(since, stop), i)))
        self.forget()


def snapshot_layers(env: Any) -> list[Any] | None:
    """The layers whose state makes up the env's, outermost first; None if the env must be replayed instead."""
    layers: list[Any] = []
    while isinstance(env, gymnasium.Wrapper):
        if _offers_snapshot(env) or isinstance(env, known.TimeLimit):
            layers.append(env)
            if getattr(env, "snapshot_is_whole", False):
                return layers
        elif not (isinstance(env, _STATELESS) or getattr(env, "stateless", False)):
            return None
        env = env.env
    return [*layers, env] if _offers_snapshot(env) else None


def take_snapshot(layers: list[Any]) -> dict[str, Any]:
    """The state of every layer, by its position."""
    return {str(k): layer.snapshot() if _offers_snapshot(layer) else _elapsed(layer) for k, layer in enumerate(layers)}


def give_snapshot(layers: list[Any], state: dict[str, Any]) -> None:
    """Hand the layers of a freshly reset env their states."""
    for k, layer in enumerate(layers):
        if _offers_snapshot(layer):
            layer.restore_snapshot(state[str(k)])
        else:
            layer._elapsed_steps = int(state[str(k)]["elapsed"])


def check_count(saved: int, num: int, name: str) -> None:
    """A checkpoint holds as many envs as the run has, or none if it was saved before the first reset."""
    if saved not in (0, num):
        raise CheckpointError(f"the checkpoint holds {saved} envs of {name}, this run has {num}: set env.num={saved}")


def saved_envs(state: dict[str, Any], num: int, name: str) -> dict[str, Any]:
    """The envs of a checkpoint of an engine with single envs."""
    if "envs" not in state:
        raise CheckpointError(f"the checkpoint of {name} was {OTHER_ENGINE}")
    check_count(len(state["envs"]), num, name)
    return state["envs"]


def differs(obs: Tree, total: float, saved: dict[str, Any]) -> str | None:
    """What came out differently when a saved episode was replayed."""
    if not same_bits(obs, saved["obs"]):
        return "its last observation differs, the env is not deterministic given its seed"
    same = total == float(saved["total"])
    return None if same else "its return differs, the rewards are not deterministic given the seed"


def same_bits(a: Tree, b: Tree) -> bool:
    """Whether two trees of arrays are equal to the last bit (NaN included)."""
    pairs = [(np.asarray(x), np.asarray(y)) for x, y in zip(leaves(a), leaves(tree_map(lambda _, y: y, a, b)))]
    return all(x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in pairs)


def _offers_snapshot(layer: Any) -> bool:
    return callable(getattr(layer, "snapshot", None)) and callable(getattr(layer, "restore_snapshot", None))


def _elapsed(limit: Any) -> dict[str, int]:
    return {"elapsed": int(limit._elapsed_steps or 0)}
