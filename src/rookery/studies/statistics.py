"""Figures over several seeds, as Agarwal 2021 advises: the interquartile mean, and its bootstrap interval.

    IQM        = mean of the middle half of the values: ¼ is left out at either end, fractions of a value weighted
    interval   = 2.5 % and 97.5 % quantiles of the IQM over redrawn values
    stratified   over several tasks, each task's values are redrawn among themselves; the IQM is that of all together

Redrawing uses its own generator with a fixed seed: the same values always give the same interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

DRAWS = 2000


def iqm(values: Any) -> Any:
    """Along the first axis: a float from [N], an array [P] from [N, P]."""
    ordered = np.sort(np.asarray(values, np.float64), axis=0)
    edges = np.arange(len(ordered) + 1) / len(ordered)
    share = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    total = sum(weight * value for weight, value in zip(share, ordered))  # one by one: BLAS adds as the CPU likes best
    mean = np.asarray(total / sum(share))
    return float(mean) if mean.ndim == 0 else mean


def interval(values: Any, draws: int = DRAWS) -> tuple[float, float]:
    """95 % bootstrap interval of the interquartile mean of one task's values [N]."""
    return stratified_interval([values], draws)


def stratified_interval(tasks: Sequence[Any], draws: int = DRAWS) -> tuple[float, float]:
    """95 % bootstrap interval of the interquartile mean over all values of several tasks, redrawn within each task."""
    rng = np.random.Generator(np.random.PCG64(0))
    redrawn = [values[_redraw(rng, draws, len(values))] for values in map(np.asarray, tasks)]
    means = iqm(np.concatenate(redrawn, axis=1).T)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def band(curves: np.ndarray, draws: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """The interval at each point of curves [N, P]: whole curves are redrawn."""
    rng = np.random.Generator(np.random.PCG64(0))
    means = np.stack([iqm(curves[chosen]) for chosen in _redraw(rng, draws, len(curves))])  # [draws, P]
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    return low, high


def _redraw(rng: np.random.Generator, draws: int, count: int) -> np.ndarray:
    return rng.integers(0, count, (draws, count))
