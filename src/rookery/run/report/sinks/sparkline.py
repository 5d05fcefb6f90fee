"""Sparkline: a curve in one line of text. It stands alone: numbers in, characters out, nothing of a run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"
_MOST = 512  # numbers that are kept


class Sparkline:
    """All numbers of a run, however many: when there are too many, neighbours become their mean."""

    def __init__(self) -> None:
        self._means: list[float] = []
        self._each = 1  # numbers behind one mean
        self._open: list[float] = []  # of the mean that is not complete yet

    def __len__(self) -> int:
        return len(self._means) + bool(self._open)

    def add(self, value: float) -> None:
        if not math.isfinite(value):
            return
        self._open.append(float(value))
        if len(self._open) == self._each:
            self._means.append(_mean(self._open))
            self._open = []
        if len(self._means) == _MOST:
            self._means = [_mean(self._means[i : i + 2]) for i in range(0, _MOST, 2)]
            self._each *= 2

    def values(self) -> list[float]:
        return [*self._means, *([_mean(self._open)] if self._open else [])]

    def range(self) -> tuple[float, float]:
        """(lowest, highest) of what is drawn."""
        return min(self.values()), max(self.values())

    def drawn(self, width: int) -> str:
        """At most `width` characters from the first number to the last; a constant is drawn low."""
        values = self.values()
        columns = min(width, len(values))
        edges = [round(i * len(values) / columns) for i in range(columns + 1)]
        means = [_mean(values[a:b]) for a, b in itertools.pairwise(edges)]
        low, high = min(means), max(means)
        scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
        return "".join(_BARS[round((value - low) * scale)] for value in means)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
