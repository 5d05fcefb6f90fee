"""A slow prioritised replay that is obviously right: every row ever seen in a Python list, every sum taken anew.

Masses are multiples of 2⁻²⁰ (α = 1), so sums are exact in any order and draws must agree exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rookery.core.chunk import Chunk

EPSILON = 2.0**-20


@dataclass
class Row:
    valid: bool
    version: int
    p: float
    reuse: int = 0


class SlowPriorities:
    """Rows are named (column, number since ever); `keep` of each column are in the ring of keep + 1 slots."""

    def __init__(self, columns: int, collectors: int, keep: int, max_reuse: int, max_staleness: int):
        self.columns: list[list[Row]] = [[] for _ in range(columns)]
        self.width, self.keep = columns // collectors, keep
        self.max_reuse, self.max_staleness = max_reuse, max_staleness
        self.top, self.version, self.inserted = 1.0, 0, 0

    def add(self, chunk: Chunk) -> None:
        valid, given = chunk.rows["valid"], chunk.rows.get("priority")
        entering = self.top
        for b in range(self.width):
            column = self.columns[chunk.collector * self.width + b]
            for t in range(len(valid)):
                p = entering if given is None else float(given[t, b]) + EPSILON
                if valid[t, b] and t >= len(valid) - self.keep:
                    self.top = max(self.top, p)
                column.append(Row(bool(valid[t, b]), chunk.version, p))
                self.inserted += bool(valid[t, b])
        self.version = max(self.version, chunk.version)

    def mass(self, c: int, i: int) -> float:
        row = self.columns[c][i]
        kept, fresh = i >= len(self.columns[c]) - self.keep, row.version >= self.version - self.max_staleness
        return row.p if row.valid and kept and fresh and row.reuse < self.max_reuse else 0.0

    def places(self) -> list[tuple[int, int] | None]:
        """The newest row of each place slot · columns + column: row i lies in slot i modulo (keep + 1)."""
        out: list[tuple[int, int] | None] = [None] * ((self.keep + 1) * len(self.columns))
        for c, column in enumerate(self.columns):
            for i in range(max(0, len(column) - self.keep), len(column)):
                out[i % (self.keep + 1) * len(self.columns) + c] = (c, i)
        return out

    def masses(self) -> list[float]:
        return [0.0 if row is None else self.mass(*row) for row in self.places()]

    def draw(self, rng: np.random.Generator, n: int) -> tuple[list[int], list[tuple[int, int]], list[float]]:
        """Addresses, rows and their probabilities."""
        found: list[tuple[int, tuple[int, int], float]] = []
        while len(found) < n:
            missing, masses, rows = n - len(found), self.masses(), self.places()
            total, edges = sum(masses), np.cumsum(masses)
            for i, u in enumerate(rng.random(missing).tolist()):
                place = int(np.searchsorted(edges, (i + u) / missing * total, side="right"))
                row = rows[place]
                assert row is not None
                if self.columns[row[0]][row[1]].reuse < self.max_reuse:
                    self.columns[row[0]][row[1]].reuse += 1
                    found.append((place, row, masses[place] / total))
        return [f[0] for f in found], [f[1] for f in found], [f[2] for f in found]

    def feedback(self, rows: list[tuple[int, int]], priorities: np.ndarray) -> None:
        for (c, i), p in zip(rows, priorities.tolist()):
            if self.mass(c, i) > 0:
                self.columns[c][i].p = p + EPSILON
                self.top = max(self.top, p + EPSILON)
