"""Ring: the memory of a replay, [slots, columns] in time order, each frame stored once.

The successor of a row is the next slot; only where an episode ends, the true final observation goes to a side
table that grows when needed and whose entries become free when their row is overwritten. Each collector writes to
its own lane of columns, with its own head, so collectors may progress differently. What is where, and the
arithmetic on it: `rookery.kernels.gather`.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import numpy as np

from rookery.core.chunk import Chunk
from rookery.core.errors import BatchError, CheckpointError, ConfigError
from rookery.core.segments import Segments
from rookery.core.tree import Tree, unflatten, walk
from rookery.data.pieces import piece
from rookery.data.replay.changed_pieces import Changes, fill_from
from rookery.data.replay.leaf import FAULTS, FLAGS, Stored, find, mismatch, paths
from rookery.data.replay.scratch import Zeros
from rookery.kernels import gather
from rookery.kernels.gather import COUNT, DRAWN, HEAD, INSERTED, SPENT, STALE_STEPS, STEPS

FIRST_FINALS = 64  # entries of the side table to begin with
BOOL, FLOAT, INT = np.dtype(bool), np.dtype(np.float32), np.dtype(np.int64)


class Ring:
    """`fields` maps names to specs; `obs` is one of them. `rows` per column are kept, `max_reuse` 0 means no limit.

    `zeros` makes the arrays of the fields, in memory or on disk.
    """

    def __init__(
        self,
        fields: dict[str, Tree],
        columns: int,
        rows: int,
        lanes: int = 1,
        max_reuse: int = 0,
        zeros: Zeros = np.zeros,
    ):
        if columns % lanes or rows < 1:
            raise ConfigError(
                f"a replay of {rows} rows and {columns} columns cannot be shared by {lanes} collectors: "
                "they need equally many columns."
            )
        self.fields, self.columns, self.rows, self.max_reuse = fields, columns, rows, max_reuse
        self.slots, self.width = rows + 1, columns // lanes
        shape = (self.slots, columns, lanes)
        self.leaves = [Stored(path, key, leaf, shape, zeros) for path, (key, leaf) in zip(paths(fields), walk(fields))]
        self.obs_leaves = [leaf for leaf in self.leaves if leaf.name == "obs"]
        self.meta = np.zeros((self.slots, columns, gather.META), np.int32)
        self.meta[..., gather.FINAL] = -1
        self.reward = self.meta.view(np.float32)  # the same memory: only [..., REWARD] is a float
        self.version_of = np.zeros((lanes, self.slots), np.int64)  # of the weights that acted
        self.version = 0  # the newest seen
        self.lanes = np.zeros((lanes, gather.LANE), np.int64)
        self.lanes[:, gather.LO] = np.arange(lanes) * self.width
        self.lanes[:, gather.WIDTH] = self.width
        self._free = np.zeros(1, np.int64)  # height of the stack, then free entries of the side table
        self._taken = np.zeros(0, np.int64)
        self._lane_views, self._version_views = list(self.lanes), list(self.version_of)
        self._changes = Changes(self.slots, lanes)
        self._lead: tuple[int, ...] = ()  # [T, B] of the last chunk
        self._known: list[Any] = []  # what fitted last: a collector fills the same arrays again and again

    @property
    def size(self) -> int:
        """Valid steps stored."""
        return int(self.lanes[:, STEPS].sum())

    @property
    def eligible(self) -> int:
        """Valid steps that may be drawn: neither stale nor used up."""
        table = self.lanes
        return int(table[:, STEPS].sum() - table[:, STALE_STEPS].sum() - table[:, SPENT].sum())

    @property
    def draws(self) -> int:
        """Draws of all steps stored now."""
        return int(self.lanes[:, DRAWN].sum())

    def add(self, chunk: Chunk, allow_cut: bool = False) -> int:
        """Append a chunk to its collector's lane; returns its valid steps.

        A chunk that does not fit is refused before anything is changed.

        With allow_cut, final_at may list rows that did not end: the data stops there, the episode did not.
        """
        if not self._surely_fits(chunk):
            problem = mismatch(chunk, self.leaves, self.width, len(self.lanes))
            if problem is not None:
                raise BatchError(problem)
        rows = len(chunk.rows["valid"])
        if 0 < rows <= self.rows:
            steps = self._write(chunk, allow_cut)
        else:
            steps = sum(
                self._write(piece(chunk, a, min(a + self.rows, rows)), allow_cut) for a in range(0, rows, self.rows)
            )
        if chunk.version > self.version:
            self.version = chunk.version
        return steps

    def _surely_fits(self, chunk: Chunk) -> bool:
        """The check of `mismatch` as it is in nearly every case, 20 times faster: types are compared by identity."""
        rows, last, ended = chunk.rows, chunk.last_obs, len(chunk.final_at)
        parts = [*rows.values(), last, chunk.final_at, chunk.collector]
        if len(parts) == len(self._known) and all(map(is_, parts, self._known)):
            return True
        self._known = []
        try:
            lead = rows["valid"].shape
            if lead != self._lead:
                self._expect(lead)
            for name in FLAGS:
                value = rows[name]
                if value.dtype is not BOOL or value.shape != lead:
                    return False
            value = rows["reward"]
            if value.dtype is not FLOAT or value.shape != lead or lead[1] != self.width:
                return False
            for leaf in self.leaves:
                value = find(rows[leaf.name], leaf.rest) if leaf.rest else rows[leaf.name]
                if value.dtype is not leaf.dtype or value.shape != leaf.expected:
                    return False
            for leaf in self.obs_leaves:
                value = find(last, leaf.rest) if leaf.rest else last
                if value.dtype is not leaf.dtype or value.shape != leaf.expected_last:
                    return False
            if ended and not all(_holds(find(chunk.final_obs, leaf.rest), ended, leaf) for leaf in self.obs_leaves):
                return False
        except (KeyError, TypeError, AttributeError, IndexError):
            return False  # `mismatch` says what
        fits = (
            chunk.final_at.dtype is INT
            and chunk.final_at.shape == (ended, 2)
            and chunk.collector in range(len(self.lanes))
        )
        if fits and not ended and not any(isinstance(part, dict) for part in parts):
            self._known = parts  # which share no changeable dict
        return fits

    def _expect(self, lead: tuple[int, ...]) -> None:
        self._lead = lead
        for leaf in self.leaves:
            leaf.expected, leaf.expected_last = (*lead, *leaf.shape), (*lead[1:], *leaf.shape)

    def _write(self, chunk: Chunk, allow_cut: bool) -> int:
        rows, number = chunk.rows, chunk.collector
        lane, valid, ended = self._lane_views[number], rows["valid"], len(chunk.final_at)
        if self._free.item(0) < ended + self.width:
            self._grow(ended + self.width)
        head, before, end = lane.item(HEAD), lane.item(INSERTED), lane.item(HEAD) + len(valid)
        cuts = gather.insert(
            lane, self.meta, self._version_views[number], self._free, self._taken,
            rows["reward"], rows["terminated"], rows["truncated"], rows["first"], valid, chunk.final_at,
            chunk.version, self.max_reuse, allow_cut,
        )  # fmt: skip
        if cuts < 0:
            raise BatchError(f"chunk of collector {number} ({len(valid)} rows): {FAULTS[cuts]}.")
        self._changes.written[number] += len(valid)
        if cuts:
            self._keep_pending(number, head, self._taken[ended : ended + 2 * cuts].reshape(cuts, 2))
        for leaf in self.leaves:
            source = find(rows[leaf.name], leaf.rest) if leaf.rest else rows[leaf.name]
            if end <= self.slots:
                leaf.lanes[number][head:end] = source
            else:
                leaf.lanes[number][head:] = source[: self.slots - head]
                leaf.lanes[number][: end - self.slots] = source[self.slots - head :]
        for leaf in self.obs_leaves:
            leaf.lanes[number][end % self.slots] = find(chunk.last_obs, leaf.rest) if leaf.rest else chunk.last_obs
            if ended:
                leaf.finals[self._taken[:ended]] = find(chunk.final_obs, leaf.rest)
        if ended:
            self._changes.fill(self._taken[:ended])
        return lane.item(INSERTED) - before

    def _keep_pending(self, lane: int, head: int, cuts: np.ndarray) -> None:
        """A column starts another episode though its last one did not end:
        its pending observation is the true successor.
        """
        for leaf in self.obs_leaves:
            leaf.finals[cuts[:, 1]] = leaf.lanes[lane][head, cuts[:, 0]]
        self._changes.fill(cuts[:, 1])

    def _grow(self, needed: int) -> None:
        """Room for at least `needed` more final observations."""
        old = len(self._free) - 1
        new = max(2 * old, old + needed, FIRST_FINALS)
        free = np.zeros(new + 1, np.int64)
        height = int(self._free[0])
        free[1 : height + 1] = self._free[1 : height + 1]
        free[height + 1 : height + 1 + new - old] = np.arange(new - 1, old - 1, -1)
        free[0] = height + new - old
        self._free, self._taken = free, np.zeros(new + 2 * self.width, np.int64)
        for leaf in self.obs_leaves:
            leaf.grow_finals(new)

    def expire(self, oldest_version: int) -> None:
        """Draw no more rows that were collected by weights older than this."""
        gather.expire(self.lanes, self.meta, self.version_of, oldest_version, self.max_reuse)

    def slots_of(self, lane: int) -> np.ndarray:
        """Slots of a lane's rows, oldest first."""
        head, count = self.lanes[lane, HEAD], self.lanes[lane, COUNT]
        return np.arange(head - count, head) % self.slots

    def staleness(self) -> float:
        """Mean over the stored rows of (newest version − version that acted)."""
        ages = [self.version - self.version_of[lane, self.slots_of(lane)] for lane in range(len(self.lanes))]
        return float(np.mean(np.concatenate(ages))) if sum(map(len, ages)) else 0.0

    def state(self, in_pieces: bool = True) -> dict[str, Any]:
        """The filled region. Arrays are views: write or copy them before the next `add`.

        In pieces: large ones are `Segments`.
        """
        used = int(self.lanes[:, COUNT].max()) + 1  # a lane that never wrapped fills its first slots
        fields: dict[str, Any] = {leaf.key: leaf.data[:used] for leaf in self.leaves}
        finals: dict[str, Any] = {leaf.key: leaf.finals for leaf in self.obs_leaves}
        if in_pieces:
            self._changes.look(self.lanes[:, HEAD].tolist())
            fields = {key: self._changes.ring(key, array, self.slots) for key, array in fields.items()}
            finals = {key: self._changes.finals(key, array) for key, array in finals.items()}
        return {
            "fields": unflatten(fields),
            "finals": unflatten(finals),
            "meta": self.meta[:used],
            "version_of": self.version_of[:, :used],
            "lanes": self.lanes,
            "free": self._free,
            "version": self.version,
            "slots": self.slots,
        }

    def restore(self, state: dict[str, Any]) -> None:
        if int(state["slots"]) != self.slots or len(state["lanes"]) != len(self.lanes):
            raise CheckpointError(
                f"the saved replay has {int(state['slots']) - 1} rows per column of {len(state['lanes'])} "
                f"collectors, this one {self.rows} of {len(self.lanes)}. Resume with the same "
                "store.capacity, number of envs and workers."
            )
        used, entries = len(state["meta"]), len(state["free"]) - 1
        saved = [_saved(state["fields"], leaf, (used, self.columns)) for leaf in self.leaves]
        finals = [_saved(state.get("finals", {}), leaf, (entries,)) for leaf in self.obs_leaves]
        for leaf, array in zip(self.leaves, saved):
            fill_from(array, leaf.data[:used])
        for leaf, array in zip(self.obs_leaves, finals):
            leaf.new_finals(entries)
            fill_from(array, leaf.finals)
        _check_places(state, self)
        self._changes.loaded(
            {leaf.key: array for leaf, array in zip(self.leaves, saved)},
            {leaf.key: array for leaf, array in zip(self.obs_leaves, finals)},
        )
        self.meta[:used], self.version_of[:, :used] = state["meta"], state["version_of"]
        self.meta[used:, :, gather.FINAL] = -1
        self.lanes[...] = state["lanes"]
        self.version = int(state["version"])
        self._free = np.array(state["free"], np.int64)
        self._taken = np.zeros(entries + 2 * self.width, np.int64)


def _check_places(state: dict[str, Any], ring: Ring) -> None:
    """Kernels trust every index: none of a saved ring may lead out of its arrays."""
    lanes, free = np.asarray(state["lanes"]), np.asarray(state["free"])
    entries, final = len(free) - 1, np.asarray(state["meta"])[..., gather.FINAL]
    bounds = [  # (numbers, least, largest)
        (lanes[:, [gather.LO, gather.WIDTH]] - ring.lanes[:, [gather.LO, gather.WIDTH]], 0, 0),
        (lanes[:, HEAD], 0, ring.slots - 1),
        (lanes[:, COUNT], 0, ring.rows),
        (free[:1], 0, entries),
        (free[1 : int(free[0]) + 1], 0, entries - 1),
        (final, -1, entries - 1),
    ]
    if any(((numbers < least) | (numbers > largest)).any() for numbers, least, largest in bounds):
        raise CheckpointError("the saved replay has rows outside its own arrays: no Rookery wrote it.")


def _saved(tree: Tree, leaf: Stored, lead: tuple[int, ...]) -> np.ndarray | Segments:
    """The saved array of a leaf; arrays without elements may have been left out."""
    shape = (*lead, *leaf.shape)
    try:
        saved = find(tree, leaf.path)
        array = saved if isinstance(saved, Segments) else np.asarray(saved)
    except KeyError:
        array = np.zeros(shape if 0 in shape else (), leaf.dtype)
    if array.shape != shape or array.dtype != leaf.dtype:
        raise CheckpointError(
            f"the saved replay has {array.dtype} {array.shape} for {'.'.join(leaf.path)}, expected {leaf.dtype} "
            f"{shape}. Resume with the same env, number of envs and store.capacity."
        )
    return array


def _holds(value: np.ndarray, entries: int, leaf: Stored) -> bool:
    return value.dtype is leaf.dtype and value.shape == (entries, *leaf.shape)
