"""Changes: which pieces of a ring's large arrays are still those that a checkpoint holds.

Adding a row costs one addition. When a state is taken, the slots written since are, per lane, a run that ends at its
head; their pieces, and those of the side table that got new entries, are forgotten. All others keep the hash under
which they were saved or loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rookery.core.segments import Segments

Known = dict[int, tuple[int, str]]  # as in Segments
Pieces = dict[str, tuple[int, Known]]  # key of a leaf → (rows per piece, what is known of them)

PIECE_BYTES = 8 << 20  # of a file of a checkpoint; arrays that never grow larger are written as a whole


class Changes:
    """`written` counts the rows ever appended to each lane; the ring adds to it."""

    def __init__(self, slots: int, lanes: int):
        self.slots = slots
        self.written = [0] * lanes
        self._before = [0] * lanes  # `written` when changes were last looked at
        self._filled: set[int] = set()  # entries of the side table written since
        self._rings: Pieces = {}
        self._finals: Pieces = {}

    def fill(self, entries: np.ndarray) -> None:
        """These entries of the side table were written."""
        if self._finals:  # otherwise nothing is known of them
            self._filled.update(entries.tolist())

    def look(self, heads: list[int]) -> None:
        """Forget the pieces that were written to. Call before asking for segments."""
        for lane, head in enumerate(heads):
            for start, stop in self._runs(lane, head):
                for rows, known in self._rings.values():
                    for number in range(start // rows, (stop - 1) // rows + 1):
                        known.pop(number, None)
        for rows, known in self._finals.values():
            for number in {entry // rows for entry in self._filled}:
                known.pop(number, None)
        self._before, self._filled = list(self.written), set()

    def _runs(self, lane: int, head: int) -> Iterator[tuple[int, int]]:
        """(first, behind the last) of the slots that changed; the head's slot got a new pending observation."""
        count = self.written[lane] - self._before[lane]
        if count == 0:
            return
        first = head - min(count, self.slots - 1)
        if first < 0:
            yield first + self.slots, self.slots
        yield max(first, 0), head + 1

    def ring(self, key: str, filled: np.ndarray, slots: int) -> np.ndarray | Segments:
        """The filled part of a ring's array, in pieces if the whole ring is large."""
        return _cut(self._rings, key, filled, slots)

    def finals(self, key: str, table: np.ndarray) -> np.ndarray | Segments:
        """The side table of a leaf, in pieces if it is large."""
        return _cut(self._finals, key, table, len(table))

    def loaded(self, rings: dict[str, np.ndarray | Segments], finals: dict[str, np.ndarray | Segments]) -> None:
        """The arrays are now those of a state: its pieces are known, and nothing else is."""
        self._before, self._filled = list(self.written), set()
        self._rings, self._finals = _known_of(rings), _known_of(finals)


def _known_of(arrays: dict[str, np.ndarray | Segments]) -> Pieces:
    return {key: (value.rows, dict(value.known)) for key, value in arrays.items() if isinstance(value, Segments)}


def _cut(pieces: Pieces, key: str, array: np.ndarray, most: int) -> np.ndarray | Segments:
    row_bytes = math.prod(array.shape[1:]) * array.dtype.itemsize
    if row_bytes * most <= PIECE_BYTES:
        pieces.pop(key, None)
        return array
    rows = max(1, PIECE_BYTES // row_bytes)
    if pieces.get(key, (0,))[0] != rows:
        pieces[key] = (rows, {})
    return Segments(array, *pieces[key])


def fill_from(saved: np.ndarray | Segments, out: np.ndarray) -> None:
    """Copy a saved array into one of the same shape."""
    if isinstance(saved, Segments):
        saved.copy_to(out)
    else:
        out[...] = saved
