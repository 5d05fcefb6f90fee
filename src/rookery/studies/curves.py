"""Learning curves: read from run folders, grouped over seeds, and made into one line with a band.

    at every x      centre = IQM over the runs, band = its 95 % bootstrap interval           4 runs and more
                    centre = mean,              band = from the lowest to the highest         2 or 3
    x               those that all runs have; if that is less than half of a run's points, all of them between the last
                    of the first points and the first of the last ones, with straight lines between a run's own points

Two runs belong together if their configs differ in nothing but the seed and where things are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rookery.core.config.yaml import read_file
from rookery.core.errors import UsageError
from rookery.core.registry import did_you_mean
from rookery.run.checkpoints.durable import json_lines
from rookery.run.config.config import flat
from rookery.run.experiment.folder import check_contents
from rookery.studies.statistics import band, iqm

Axis = Literal["steps", "seconds"]
Points = tuple[np.ndarray, np.ndarray]  # x and y of one run
FEW = 4  # fewer runs have no middle half
_ELSEWHERE = ("run.seed", "run.out", "run.name", "run.on_exists", "log.", "checkpoint.")  # changes no curve


@dataclass(frozen=True, slots=True)
class Curve:
    """One line with its band; [P] each."""

    label: str
    x: np.ndarray
    centre: np.ndarray
    low: np.ndarray
    high: np.ndarray
    runs: int
    gate: float | None = None  # what must be reached, a dashed line

    @property
    def method(self) -> str:
        """What line and band are, in words."""
        if self.runs == 1:
            return "one run"
        if self.runs < FEW:
            return f"mean of {self.runs} runs, band from the lowest to the highest"
        return f"IQM of {self.runs} runs, band: 95 % bootstrap interval"


@dataclass(frozen=True, slots=True)
class Run:
    """One run folder, as far as curves go."""

    folder: Path
    config: dict[str, Any]  # flat
    points: Points

    @property
    def env(self) -> str:
        return str(self.config.get("env.id"))


def curve_of(label: str, runs: Sequence[Points], gate: float | None = None) -> Curve:
    """One curve from the points of several runs."""
    x, values = aligned([points for points in runs if len(points[0])])
    if len(values) < FEW:
        centre, low, high = (f(values, axis=0) if len(values) else x for f in (np.mean, np.min, np.max))
    else:
        centre, (low, high) = iqm(values), band(values)
    return Curve(label, x, centre, low, high, len(runs), gate)


def aligned(runs: Sequence[Points]) -> tuple[np.ndarray, np.ndarray]:
    """x [P] and the values of all runs there [N, P]; P = 0 if they have no x in common."""
    if not runs:
        return np.zeros(0), np.zeros((0, 0))
    runs = [_last_of_each(points) for points in runs]
    common = np.array(sorted(set.intersection(*(set(x.tolist()) for x, _ in runs))))
    if 2 * len(common) < min(len(x) for x, _ in runs):
        everything = np.unique(np.concatenate([x for x, _ in runs]))
        first, last = max(x[0] for x, _ in runs), min(x[-1] for x, _ in runs)
        common = everything[(everything >= first) & (everything <= last)]
    return common, np.stack([np.interp(common, x, y) for x, y in runs])


def read_run(folder: Path, metric: str, axis: Axis = "steps") -> Run:
    """The curve of one metric in a run's metrics.jsonl; an evaluation counts at the steps it was made after."""
    config, file = folder / "config.yaml", folder / "metrics.jsonl"
    if not config.is_file() or not file.is_file():
        raise UsageError(f"{folder} is not the folder of a run with metrics: it has no config.yaml or no metrics.jsonl")
    check_contents(folder)
    rows = list(json_lines(file))
    at = "time/seconds" if axis == "seconds" else "eval/steps" if metric.startswith("eval/") else "steps"
    points = [(row[at], row[metric]) for row in rows if row.get(metric) is not None and row.get(at) is not None]
    if not points:
        known = sorted({name for row in rows for name in row})
        raise UsageError(f"{folder} has no metric {metric!r}.{did_you_mean(metric, known)} It has: {', '.join(known)}.")
    x, y = np.array(points, np.float64).T
    return Run(folder, flat(read_file(config)[0]), (x, y))


def grouped(runs: Sequence[Run]) -> dict[str, list[Curve]]:
    """env → its curves: one per config, named by algorithm and by what distinguishes it from the others there."""
    panels: dict[str, list[Curve]] = {}
    for env in dict.fromkeys(run.env for run in runs):
        configs: list[tuple[dict[str, Any], list[Run]]] = []
        for run in (run for run in runs if run.env == env):
            learns = {key: value for key, value in run.config.items() if not key.startswith(_ELSEWHERE)}
            together = next((group for config, group in configs if config == learns), None)
            if together is None:
                configs.append((learns, [run]))
            else:
                together.append(run)
        names = _labels([config for config, _ in configs])
        panels[env] = [curve_of(name, [run.points for run in group]) for name, (_, group) in zip(names, configs)]
    return panels


def _labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The algorithm, and if several curves would have that name, up to three of the keys in which they differ."""
    algos = [str(config.get("algo.name", "several players")) for config in configs]
    labels = []
    for config, algo in zip(configs, algos):
        others = [other for other, name in zip(configs, algos) if name == algo]
        keys = dict.fromkeys(key for other in others for key in (*config, *other) if other.get(key) != config.get(key))
        labels.append(" ".join([algo, *(f"{key}={config.get(key)}" for key in [*keys][:3])]))
    return labels


def _last_of_each(points: Points) -> Points:
    """In increasing order, of equal x the last: two reports may fall into one step."""
    x, y = points
    places = {float(value): index for index, value in enumerate(x)}
    order = [places[value] for value in sorted(places)]
    return x[order], y[order]
