"""Steps whose observations are numbers that count up in each column, so that a number says what was done there and
what came next.

The successor of k is k + 1, whether the episode went on (k + 1 is acted on) or ended (k + 1 is its final observation,
and the next episode begins with k + 2). Rows in which nothing was decided have an action that nothing else has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery.core.chunk import Chunk
from rookery.core.spec import Leaf, zeros
from rookery.core.tree import Tree, tree_map

NUMBER = Leaf("box", (1,), np.dtype(np.float32))
CHOICE = Leaf("discrete", (), np.dtype(np.int64), (5,))
COLUMN = 100_000  # numbers of a column begin at its index times this; float32 counts exactly up to 16 million
HOLE = 4  # the action of rows in which nothing was decided: nothing else has it


@dataclass(frozen=True, slots=True)
class Fact:
    """What was done on an observation."""

    action: int
    reward: float
    terminated: bool
    truncated: bool


class Steps:
    """Makes chunks of numbered steps, and remembers them."""

    def __init__(self, obs_spec: Tree, columns: int, *, extras: dict[str, Tree] | None = None, holes: float = 0.2):
        self.obs_spec, self.columns, self.extras, self.holes = obs_spec, columns, extras or {}, holes
        self.rng = np.random.default_rng(5)
        self.number = [COLUMN * b for b in range(columns)]  # what is acted on next
        self.first = [True] * columns
        self.facts: dict[int, Fact] = {}
        self.version = 0

    def chunk(self, rows: int) -> Chunk:
        """Rows [T, B]; about every eighth step ends an episode."""
        shape = (rows, self.columns)
        arrays: dict[str, Any] = {name: np.zeros(shape, bool) for name in ("terminated", "truncated", "first", "valid")}
        arrays |= {"action": np.full(shape, HOLE, np.int64), "reward": np.zeros(shape, np.float32)}
        numbers, finals = np.zeros(shape), []
        for t in range(rows):
            for b in range(self.columns):
                numbers[t, b] = self.number[b]
                if self.rng.random() >= self.holes:
                    finals += self._step(arrays, t, b)
        rows_of = (
            arrays | {"obs": self._seen(numbers)} | {name: zeros(spec, *shape) for name, spec in self.extras.items()}
        )
        at = np.array([(t, b) for t, b, _ in finals], np.int64).reshape(-1, 2)
        final_obs = self._seen(np.array([number for *_, number in finals]))
        return Chunk(rows_of, self._seen(np.array(self.number)), final_obs, at, version=self.version)

    def _step(self, arrays: dict[str, Any], t: int, b: int) -> list[tuple[int, int, int]]:
        fate, number = self.rng.random(), self.number[b]
        fact = Fact(int(self.rng.integers(HOLE)), float(self.rng.integers(-4, 5)), fate < 0.07, 0.05 < fate < 0.12)
        self.facts[number] = fact
        arrays["valid"][t, b], arrays["first"][t, b] = True, self.first[b]
        for name in ("action", "reward", "terminated", "truncated"):
            arrays[name][t, b] = getattr(fact, name)
        self.first[b] = fact.terminated or fact.truncated
        self.number[b] += 2 if self.first[b] else 1
        return [(t, b, number + 1)] if self.first[b] else []

    def _seen(self, numbers: np.ndarray) -> Tree:
        """Observations of these numbers: every leaf is filled with them."""

        def fill(leaf: Leaf) -> np.ndarray:
            spread = numbers.reshape(*numbers.shape, *[1] * len(leaf.shape))
            return np.broadcast_to(spread, (*numbers.shape, *leaf.shape)).astype(leaf.dtype)

        return tree_map(fill, self.obs_spec)
