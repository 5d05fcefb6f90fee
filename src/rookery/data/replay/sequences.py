"""Windows: sequences of rows for algorithms with memory, read from the ring time-major.

    obs, action, reward, next_obs … [T, B]      T = burn_in + length; next_obs is the true successor of each row
    state [1, B]                                the recorded state that was input to the first real row
    valid [T, B]                                false: padding, before a shorter burn-in and after the end of an episode

A window never crosses an episode. Its rows are the decisions of one seat: holes are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery.core.tree import Tree, unflatten
from rookery.data.aligned import aligned_zeros
from rookery.data.replay.leaf import words
from rookery.data.replay.ring import Ring
from rookery.kernels import gather, sequence

STATE = "state"  # the field of the ring that is read at the first row only


@dataclass(frozen=True, slots=True)
class Window:
    """What a sequence is: `length` learnt rows after up to `burn_in` rows,
    beginning at every `stride`-th row of an episode.
    """

    length: int
    burn_in: int
    stride: int
    eta: float = 0.9  # share of the largest error in a sequence's priority, the rest is their mean


class Windows:
    """Which windows of a ring are complete; told of every insert."""

    def __init__(self, ring: Ring, shape: Window):
        self.ring, self.shape = ring, shape
        self.age = np.zeros(ring.columns, np.int64)  # valid rows of each column's running episode

    def before(self, lane: int, first: np.ndarray) -> np.ndarray:
        """Call before rows are inserted, with the `first` flags of the next row:
        addresses of windows that are cut off.
        """
        ring, shape = self.ring, self.shape
        if not first.any():
            return np.zeros(0, np.int64)
        out = np.zeros(ring.width * shape.length, np.int64)
        n = sequence.cut(ring.lanes[lane], ring.meta, self.age, first, shape.length, shape.stride, out)
        return out[:n]

    def after(self, lane: int, rows: int) -> np.ndarray:
        """Call after rows were inserted: addresses of the windows that became complete."""
        ring, shape = self.ring, self.shape
        out = np.zeros(ring.width * (rows + shape.length), np.int64)
        n = sequence.advance(ring.lanes[lane], ring.meta, self.age, rows, shape.length, shape.stride, out)
        return out[:n]

    def state(self) -> dict[str, Any]:
        return {"age": self.age.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self.age[:] = state["age"]


class WindowReader:
    """As `Reader`: `index` holds where windows begin, `read` fills `arrays`."""

    def __init__(self, ring: Ring, size: int, shape: Window):
        self._ring, self._burn_in = ring, shape.burn_in
        total = shape.burn_in + shape.length
        self.index = np.zeros(size, np.int64)
        self._at, self._next_at = np.zeros((total, size), np.int64), np.zeros((total, size), np.int64)
        self._start_at = np.zeros(size, np.int64)
        self._flags = np.zeros((total, size), np.int32)
        self._reward = aligned_zeros((total, size), np.float32)
        self._marks = {name: aligned_zeros((total, size), np.bool_) for name in MARKS}
        flat: dict[str, np.ndarray] = {}
        self._jobs = []  # (leaf, addresses, words of the array to fill)
        for leaf in ring.leaves:
            once = leaf.name == STATE
            flat[leaf.key] = aligned_zeros((1 if once else total, size, *leaf.shape), leaf.dtype)
            at = self._start_at if once else self._at.reshape(-1)
            self._jobs.append((leaf, at, words(flat[leaf.key], 2)))
            if leaf.name == "obs":
                flat["next_" + leaf.key] = aligned_zeros((total, size, *leaf.shape), leaf.dtype)
                self._jobs.append((leaf, self._next_at.reshape(-1), words(flat["next_" + leaf.key], 2)))
        self.arrays: dict[str, Tree] = {**unflatten(flat), "reward": self._reward, **self._marks}

    def read(self) -> None:
        """Fill `arrays` with the windows that begin at `index`."""
        ring = self._ring
        sequence.window(
            self.index, self._burn_in, ring.lanes, ring.meta, ring.reward,
            self._at, self._next_at, self._reward, self._flags,
        )  # fmt: skip
        self._start_at[:] = self._at[0]  # padding repeats the first real row
        for name, bits in MARKS.items():
            np.not_equal(self._flags & bits, 0, out=self._marks[name])
        for leaf, at, out in self._jobs:
            gather.copy_rows(leaf.words, leaf.final_words, at, out)


MARKS = {"valid": gather.VALID, "first": gather.FIRST, "terminated": gather.TERMINATED, "done": gather.CLOSED}
