"""Limiter: how many updates the inserted steps have paid for.

    granted = ⌊ratio · max(0, inserted − min_fill)⌋        credit = granted − updates

The ratio is kept as a fraction of integers, so the count is exact however long the run is and however the
inserts are cut into chunks.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

LARGEST_DENOMINATOR = 1_000_000  # 1/3, 0.1 and 0.125 are meant exactly, although the first two are not floats


class Limiter:
    """Grants `updates_per_step` updates for every step inserted after the first `min_fill`."""

    __slots__ = ("_denominator", "_numerator", "inserted", "min_fill", "updates")

    def __init__(self, updates_per_step: float, min_fill: int):
        ratio = Fraction(updates_per_step).limit_denominator(LARGEST_DENOMINATOR)
        if ratio <= 0:  # smaller than one update per million steps
            ratio = Fraction(1, LARGEST_DENOMINATOR)
        self._numerator, self._denominator = ratio.numerator, ratio.denominator
        self.min_fill = min_fill
        self.inserted = 0  # valid steps, ever
        self.updates = 0

    def insert(self, steps: int) -> None:
        self.inserted += steps

    def spend(self) -> None:
        self.updates += 1

    @property
    def credit(self) -> int:
        """Updates that may be done now; negative if more were done than granted."""
        return max(0, self.inserted - self.min_fill) * self._numerator // self._denominator - self.updates

    def state(self) -> dict[str, Any]:
        return {"inserted": self.inserted, "updates": self.updates}

    def restore(self, state: dict[str, Any]) -> None:
        self.inserted, self.updates = int(state["inserted"]), int(state["updates"])
