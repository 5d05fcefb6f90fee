"""Replay: recorded steps in the hands of a user, without trainer and chunks.

It is bounded, can be sampled, and keeps its steps in the same ring as `ReplayStore`, each observation once. Positions
count in time order, 0 is the oldest step; with several columns the columns of one time come one after another.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from rookery.core.chunk import Chunk
from rookery.core.errors import BatchError, UsageError
from rookery.core.spec import Leaf, spec_of
from rookery.core.tree import Tree, leaves, tree_map, unflatten
from rookery.data.recorded import files
from rookery.data.replay.reader import Reader
from rookery.data.replay.ring import Ring
from rookery.kernels import gather

EXTRAS = ("info", "policy")
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _whole(method: _Method) -> _Method:
    """One call at a time, whichever thread it comes from."""

    @functools.wraps(method)
    def locked(self: Replay, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return cast(_Method, locked)


class Replay:
    """The newest `capacity` steps. Several threads may use it at once: each call is whole, and what it returns is the
    caller's own.

    Args:
        capacity: steps kept, over all columns.
        columns: envs that are recorded side by side.
        obs_space, action_space: of gymnasium; None: as the first step has it.
        stack: frames that are stacked when read.
        seed: of `sample`.
    """

    def __init__(
        self,
        capacity: int,
        *,
        columns: int = 1,
        obs_space: Any = None,
        action_space: Any = None,
        stack: int = 1,
        seed: int = 0,
    ):
        if capacity < 1 or columns < 1 or stack < 1:
            raise UsageError(f"capacity={capacity}, columns={columns} and stack={stack} must be at least 1.")
        self.capacity, self.columns, self.stack = capacity, columns, stack
        self._obs_spec = spec_of(obs_space, "obs_space") if obs_space is not None else None
        self._action_spec = spec_of(action_space, "action_space") if action_space is not None else None
        self._rng = np.random.default_rng(seed)
        self._ring: Ring | None = None
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return self._ring.size if self._ring else 0

    @_whole
    def add(
        self,
        *,
        obs: Tree,
        action: Tree,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_obs: Tree,
        info: Tree = None,
        policy: Tree = None,
    ) -> None:
        """Append one step (of every column: leaves [columns, …] if there are several).

        info and policy are dicts of numbers or arrays.
        """
        extras = {name: value for name, value in (("info", info), ("policy", policy)) if value}
        if self._ring is None:
            self._ring = self._made_for({"obs": obs, "action": action, **extras})
        ring = self._ring
        if set(extras) != set(ring.fields) & set(EXTRAS):
            raise BatchError(
                f"this replay stores {sorted(ring.fields)}; the step has obs, action and "
                f"{sorted(extras) or 'no extras'}. Give every step the same fields."
            )
        step = {
            name: self._shaped(value, ring.fields[name], name)
            for name, value in ({"obs": obs, "action": action} | extras).items()
        }
        after = self._shaped(next_obs, ring.fields["obs"], "next_obs")
        rows: dict[str, Tree] = {name: tree_map(lambda x: x[None], value) for name, value in step.items()}
        rows["reward"] = self._column(reward, np.float32, "reward")
        rows["terminated"], rows["truncated"] = (
            self._column(terminated, bool, "terminated"),
            self._column(truncated, bool, "truncated"),
        )
        rows["valid"] = np.ones((1, self.columns), bool)
        rows["first"] = self._starts(step["obs"])[None]
        ended = np.argwhere(rows["terminated"] | rows["truncated"])
        ring.add(Chunk(rows, after, tree_map(lambda x: x[ended[:, 1]], after), ended))

    def _starts(self, obs: Tree) -> np.ndarray:
        """Which columns begin an episode: the step before ended, or its next_obs is not this obs."""
        ring = self._ring
        assert ring is not None
        head, count = int(ring.lanes[0, gather.HEAD]), int(ring.lanes[0, gather.COUNT])
        starts = np.full(self.columns, count == 0)
        if count:
            starts |= (ring.meta[head - 1, :, gather.FLAGS] & gather.CLOSED) != 0
            for stored, value in zip(ring.obs_leaves, leaves(obs)):
                same = (stored.data[head] == value) | (
                    (stored.data[head] != stored.data[head]) & (value != value)
                )  # NaN equals NaN
                starts |= ~same.reshape(self.columns, -1).all(1)
        return starts

    def update(self, other: Replay | Iterable[dict[str, Tree]]) -> None:
        """Append the steps of another recording (or any series of steps, such as a Trace), in time order."""
        if not isinstance(other, Replay):
            for step in other:
                self.add(**step)
            return
        if other.columns != self.columns:
            raise UsageError(f"cannot append {other.columns} columns to {self.columns}.")
        with other._lock:  # never both at once: two threads may append two recordings to each other
            if other._ring is None:
                return
            fields, chunk = other._ring.fields, _everything(other._ring)
        with self._lock:
            if self._ring is None:
                self._ring = Ring(fields, self.columns, self._rows)
            chunk.rows["first"][0] = self._starts(tree_map(lambda x: x[0], chunk.rows["obs"]))
            self._ring.add(chunk, allow_cut=True)

    @_whole
    def sample(self, n: int) -> tuple[dict[str, Tree], np.ndarray]:
        """(batch, positions) of n steps drawn uniformly, with batch == replay[positions];
        n = 0: every step in time order.
        """
        if n < 0 or (n > 0 and len(self) == 0):
            raise UsageError(f"cannot sample {n} steps of {len(self)}. Add steps first; sample(0) gives everything.")
        at = self._rng.integers(len(self), size=n) if n else np.arange(len(self))
        return self[at], at

    @_whole
    def __getitem__(self, at: Any) -> dict[str, Tree]:
        """The step at a position (no batch axis), or a batch for a slice, a mask or an array of positions."""
        ring = self._ring
        if ring is None:
            raise UsageError("the replay is empty, and nothing is known about its steps yet. Add steps first.")
        positions = np.atleast_1d(np.arange(len(self))[at])
        time, column = np.divmod(positions, self.columns)
        slot = ring.slots_of(0)[time]
        reader = Reader(ring, len(positions), stack=self.stack)
        reader.index[:] = slot * self.columns + column
        reader.read()
        flags = ring.meta[slot, column, gather.FLAGS]
        batch = {name: value for name, value in reader.arrays.items() if name != "discount"}
        batch |= {"terminated": (flags & gather.TERMINATED) != 0, "truncated": (flags & gather.TRUNCATED) != 0}
        return tree_map(lambda x: x[0], batch) if np.ndim(at) == 0 and not isinstance(at, slice) else batch

    def save(self, path: str | Path) -> None:
        """Write everything to one safetensors file (with a JSON head, without pickle)."""
        files.write(path, *self._packed())

    @classmethod
    def load(cls, path: str | Path) -> Replay:
        """The replay that `save` wrote; it goes on exactly as the saved one would have."""
        return cls._unpacked(*files.read(path))

    def __reduce__(self) -> tuple[Any, ...]:
        return Replay._unpacked, self._packed()

    @_whole
    def _packed(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        head = {
            "capacity": self.capacity,
            "columns": self.columns,
            "stack": self.stack,
            "rng": self._rng.bit_generator.state,
        }
        ring, arrays = files.pack(self._ring) if self._ring else (None, {})
        return head | {"ring": ring}, arrays

    @classmethod
    def _unpacked(cls, head: dict[str, Any], arrays: dict[str, np.ndarray]) -> Replay:
        replay = cls(head["capacity"], columns=head["columns"], stack=head["stack"])
        replay._rng.bit_generator.state = head["rng"]
        replay._ring = files.unpack(head["ring"], arrays) if head["ring"] else None
        return replay

    @property
    def _rows(self) -> int:
        return math.ceil(self.capacity / self.columns)

    def _made_for(self, step: dict[str, Tree]) -> Ring:
        inferred = {name: tree_map(self._inferred, value) for name, value in step.items()}
        fields = inferred | ({"obs": self._obs_spec} if self._obs_spec is not None else {})
        return Ring(
            fields | ({"action": self._action_spec} if self._action_spec is not None else {}), self.columns, self._rows
        )

    def _inferred(self, value: Any) -> Leaf:
        array = np.asarray(value)
        dtype = np.dtype(np.float32) if array.dtype == np.float64 else array.dtype
        if dtype.kind not in "biuf":
            raise BatchError(
                f"a replay stores numbers; got {type(value).__name__} of type {array.dtype}. "
                "Leave it out or encode it as numbers."
            )
        return Leaf("box", array.shape if self.columns == 1 else array.shape[1:], dtype)

    def _shaped(self, value: Tree, spec: Tree, name: str) -> Tree:
        """The value as arrays [columns, …] of the stored type."""
        if isinstance(spec, dict):
            if not isinstance(value, dict) or set(value) != set(spec):
                got = sorted(value) if isinstance(value, dict) else type(value).__name__
                raise BatchError(f"{name} must have the keys {sorted(spec)}, got {got}.")
            return {key: self._shaped(value[key], part, f"{name}.{key}") for key, part in spec.items()}
        array: np.ndarray = np.asarray(value)[None] if self.columns == 1 else np.asarray(value)
        if array.shape != (self.columns, *spec.shape) or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
            raise BatchError(
                f"{name} must be {spec.dtype} {spec.shape} per step in {self.columns} column(s), "
                f"got {array.dtype} {np.shape(value)}."
            )
        return array.astype(spec.dtype)

    def _column(self, value: Any, dtype: type, name: str) -> np.ndarray:
        array: np.ndarray = np.asarray(value, dtype)
        if array.size != self.columns:
            raise BatchError(f"{name} must be one number per column ({self.columns}), got shape {array.shape}.")
        return array.reshape(1, self.columns)


def _everything(ring: Ring) -> Chunk:
    """All rows of a ring with one lane as one chunk, whose final_at also lists the rows where data was cut."""
    slots = ring.slots_of(0)
    flags, head = ring.meta[slots, :, gather.FLAGS], int(ring.lanes[0, gather.HEAD])
    rows: dict[str, Tree] = unflatten({leaf.key: leaf.data[slots] for leaf in ring.leaves})
    rows["reward"] = np.ascontiguousarray(ring.reward[slots, :, gather.REWARD])
    bits = (
        ("valid", gather.VALID),
        ("first", gather.FIRST),
        ("terminated", gather.TERMINATED),
        ("truncated", gather.TRUNCATED),
    )
    rows |= {name: (flags & bit) != 0 for name, bit in bits}
    at = np.argwhere(flags & gather.CLOSED)
    entry = ring.meta[slots[at[:, 0]], at[:, 1], gather.FINAL]
    last = unflatten({leaf.key: leaf.data[head] for leaf in ring.obs_leaves})["obs"]
    final = unflatten({leaf.key: leaf.finals[entry] for leaf in ring.obs_leaves})["obs"]
    return Chunk(rows, last, final, at)
