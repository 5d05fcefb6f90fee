"""Segments: a large array of a state, kept in pieces of its first axis,
so that a checkpoint need not write again what it wrote before.

Whoever owns the array says which pieces have changed (`forget`), whoever writes or reads a piece says which bytes it
was (`know`). A piece whose hash is known is, bit for bit, the file with that hash: it does not matter which save wrote
it, and whether that save succeeded.
"""

from __future__ import annotations

import numpy as np


class Segments:
    """Pieces of `rows` rows of an array (the last may be shorter).

    `known` belongs to the owner and outlives this object.
    """

    def __init__(self, array: np.ndarray, rows: int, known: dict[int, tuple[int, str]]):
        self.array: np.ndarray | None = array
        self.shape, self.dtype, self.rows = array.shape, array.dtype, rows
        self.known = known  # piece → (its rows, SHA-256 of its file)

    def __len__(self) -> int:
        return -(-self.shape[0] // self.rows)

    def bounds(self, number: int) -> tuple[int, int]:
        """First row of a piece, and the row after its last."""
        return number * self.rows, min((number + 1) * self.rows, self.shape[0])

    def piece(self, number: int) -> np.ndarray:
        """The rows of a piece; a view."""
        assert self.array is not None
        start, stop = self.bounds(number)
        return self.array[start:stop]

    def sha256(self, number: int) -> str | None:
        """The hash of the file that holds this piece, if it is known."""
        start, stop = self.bounds(number)
        rows, sha256 = self.known.get(number, (-1, ""))
        return sha256 if rows == stop - start else None

    def know(self, number: int, sha256: str) -> None:
        """The piece as it is now was written to, or read from, a file with this hash."""
        start, stop = self.bounds(number)
        self.known[number] = (stop - start, sha256)

    def copy_to(self, out: np.ndarray) -> None:
        """Fill an array of the same shape, one piece in memory at a time."""
        for number in range(len(self)):
            start, stop = self.bounds(number)
            out[start:stop] = self.piece(number)
