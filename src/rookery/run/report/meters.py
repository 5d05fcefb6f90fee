"""Meters: numbers with an explicit window, turned into the metrics of a report.

    episode/…   mean, min, max, std over the last k finished episodes
    (updates)   mean over the updates since the last report in which the metric occurred; or mean, min, max, std over
                the last k updates of its kind (`log.update_window`)
    (custom)    mean, min, max over what was recorded since the last report
    time/…      clocks; kept apart in the state too, under `time`, because no run repeats them

A metric without a value in its window is absent from the report; there is no NaN that means "nothing yet".
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rookery.core.chunk import EpisodeEnd
from rookery.run.report.clock import OTHER, PhaseClock, Rates
from rookery.run.report.sinks.values import TYPED, from_state, to_state


class Window:
    """The last `size` numbers."""

    __slots__ = ("_values",)

    def __init__(self, size: int):
        self._values: deque[float] = deque(maxlen=size)

    def add(self, value: float) -> None:
        self._values.append(float(value))

    def __len__(self) -> int:
        return len(self._values)

    @property
    def mean(self) -> float:
        """NaN if empty."""
        return math.fsum(self._values) / len(self._values) if self._values else math.nan

    def summary(self, name: str) -> dict[str, float]:
        """`name_mean`, `_min`, `_max`, `_std` (of the population); nothing if empty."""
        if not self._values:
            return {}
        mean = self.mean
        variance = math.fsum((value - mean) ** 2 for value in self._values) / len(self._values)
        low, high = min(self._values), max(self._values)
        return {f"{name}_mean": mean, f"{name}_min": low, f"{name}_max": high, f"{name}_std": math.sqrt(variance)}

    def state(self) -> dict[str, Any]:
        return {"values": np.array(self._values, dtype=np.float64)}

    def restore(self, state: dict[str, Any]) -> None:
        self._values.clear()
        self._values.extend(np.asarray(state["values"], dtype=np.float64).tolist())


class EpisodeMeter:
    """Return, length and success (where infos tell `is_success`) over the last `window` episodes; own numbers go to
    `custom`."""

    def __init__(self, window: int, custom: CustomMeter | None = None):
        self.returns, self.lengths, self.successes = Window(window), Window(window), Window(window)
        self.custom = custom if custom is not None else CustomMeter()
        self.players: dict[str, Window] = {}  # returns of each of several players
        self.window = window
        self.count = 0  # episodes since the run began

    def add(self, episode: EpisodeEnd) -> None:
        self.count += 1
        self.returns.add(episode.total)
        self.lengths.add(episode.length)
        if "seats" in episode.info:
            self._add_players(episode.info)
        if (success := episode.success) is not None:
            self.successes.add(success)
        for name, value in episode.metrics.items():
            self.custom.record(name, value)

    def _add_players(self, info: dict[str, Any]) -> None:
        for player, value in returns_of(info).items():
            self.players.setdefault(player, Window(self.window)).add(value)

    def report(self) -> dict[str, float]:
        players = {f"player/{name}/return_mean": returns.mean for name, returns in self.players.items()}
        success = {"episode/success_mean": self.successes.mean} if len(self.successes) else {}
        return self.returns.summary("episode/return") | self.lengths.summary("episode/length") | success | players

    def state(self) -> dict[str, Any]:
        windows = {"returns": self.returns, "lengths": self.lengths, "successes": self.successes}
        players = {"players": {name: window.state() for name, window in self.players.items()}} if self.players else {}
        return {name: window.state() for name, window in windows.items()} | {"count": self.count} | players

    def restore(self, state: dict[str, Any]) -> None:
        self.returns.restore(state["returns"])
        self.lengths.restore(state["lengths"])
        self.successes.restore(state["successes"])
        self.count = int(state["count"])
        self.players = {}
        for name, saved in state.get("players", {}).items():
            self.players[name] = Window(self.window)
            self.players[name].restore(saved)


def returns_of(info: dict[str, Any]) -> dict[str, float]:
    """player → its mean return over the agents it sat for, of an episode with several players."""
    returns: dict[str, list[float]] = {}
    for agent, player in info["seats"].items():
        if agent in info["returns"]:  # it took part
            returns.setdefault(player, []).append(info["returns"][agent])
    return {player: math.fsum(values) / len(values) for player, values in returns.items()}


class UpdateMeter:
    """Means over the updates since the last report, summed in float64.

    Called after every update. Updates of one kind hand in the same tuple object every time, so the common case is one
    comparison and one addition; a metric that occurs only in some updates is averaged over those.
    """

    __slots__ = ("_count", "_counts", "_names", "_sum", "_sums")

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], np.ndarray] = {}
        self._counts: dict[tuple[str, ...], int] = {}  # without those of the present tuple since it became present
        self._names: tuple[str, ...] | None = None
        self._sum = np.zeros(0)
        self._count = 0

    def add(self, names: tuple[str, ...], numbers: np.ndarray) -> None:
        """numbers: float32 or float64 [len(names)]; may be reused by the caller."""
        if names is not self._names:
            self._change(names)
        self._sum += numbers
        self._count += 1

    def _change(self, names: tuple[str, ...]) -> None:
        self._settle()
        self._names = names
        self._sum = self._sums.setdefault(names, np.zeros(len(names)))
        self._counts.setdefault(names, 0)

    def _settle(self) -> None:
        if self._names is not None:
            self._counts[self._names] += self._count
        self._count = 0

    def report(self) -> dict[str, float]:
        """Mean of every metric that occurred; starts the next window."""
        means = self.means()
        for names in self._counts:
            self._sums[names][:] = 0.0
            self._counts[names] = 0
        return means

    def means(self) -> dict[str, float]:
        """Mean of every metric that has occurred in the window so far."""
        self._settle()
        total: dict[str, float] = {}
        count: dict[str, int] = {}
        for names, n in self._counts.items():
            if n:
                for name, value in zip(names, self._sums[names].tolist()):
                    total[name] = total.get(name, 0.0) + value
                    count[name] = count.get(name, 0) + n
        return {name: total[name] / count[name] for name in total}

    def state(self) -> dict[str, Any]:
        """In order of appearance, which is the order of summation."""
        running = {self._names: self._count}
        kinds = [
            {"names": list(names), "sum": self._sums[names].copy(), "count": n + running.get(names, 0)}
            for names, n in self._counts.items()
        ]
        return {"kinds": kinds}

    def restore(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]  # everything is replaced
        for kind in state["kinds"]:
            if "sum" not in kind:  # a sliding window, before the run was resumed without one
                continue
            names = tuple(kind["names"])
            self._sums[names] = np.array(kind["sum"], dtype=np.float64)
            self._counts[names] = int(kind["count"])


class SlidingUpdates:
    """Mean, min, max and std over the last `size` updates in which a metric occurred, reported or not."""

    __slots__ = ("_added", "_rings", "_size")

    def __init__(self, size: int):
        self._size = size
        self._rings: dict[tuple[str, ...], list[Any]] = {}  # names → [rows written, ring [size, 1 + names]]
        self._added = 0  # in all: the first number of every row, which orders those of different kinds

    def add(self, names: tuple[str, ...], numbers: np.ndarray) -> None:
        """numbers: float32 or float64 [len(names)]; may be reused by the caller."""
        kind = self._rings.get(names)
        if kind is None:
            kind = self._rings[names] = [0, np.zeros((self._size, 1 + len(names)))]
        row = kind[1][kind[0] % self._size]
        row[0], row[1:] = self._added, numbers
        kind[0] += 1
        self._added += 1

    def report(self) -> dict[str, float]:
        """Nothing is forgotten by it."""
        seen: dict[str, list[np.ndarray]] = {}  # metric → [n, 2]: when, and its number
        for names, (count, ring) in self._rings.items():
            for i, name in enumerate(names, 1):
                seen.setdefault(name, []).append(ring[:count, (0, i)])
        metrics: dict[str, float] = {}
        for name, parts in seen.items():
            rows = np.concatenate(parts)
            last = rows[rows[:, 0].argsort()][-self._size :, 1]
            metrics |= {name: float(last.mean()), f"{name}_min": float(last.min()), f"{name}_max": float(last.max())}
            metrics[f"{name}_std"] = float(last.std())
        return metrics

    means = report

    def state(self) -> dict[str, Any]:
        kinds = [{"names": list(names), "rows": n, "ring": ring.copy()} for names, (n, ring) in self._rings.items()]
        return {"kinds": kinds, "added": self._added, "size": self._size}

    def restore(self, state: dict[str, Any]) -> None:
        """Windows of another size, or sums since a report, are not gone on with: the run was resumed with another
        log.update_window."""
        same = state.get("size") == self._size
        kinds = state["kinds"] if same else ()
        self._rings = {tuple(kind["names"]): [int(kind["rows"]), np.array(kind["ring"])] for kind in kinds}
        self._added = int(state["added"]) if same else 0


class CustomMeter:
    """What users record under a name: mean, min and max of numbers since the last report; of anything else the last
    one."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}  # count, sum, min, max
        self._typed: dict[str, Any] = {}  # histograms, pictures, tables: the last one of each name

    def record(self, name: str, value: Any) -> None:
        if type(value).__name__ in TYPED:
            self._typed[name] = value
            return
        value = float(value)
        seen = self._seen.get(name)
        if seen is None:
            self._seen[name] = [1, value, value, value]
            return
        seen[0] += 1
        seen[1] += value
        seen[2] = min(seen[2], value)
        seen[3] = max(seen[3], value)

    def report(self) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        for name, (count, total, low, high) in self._seen.items():
            metrics |= {f"{name}_mean": total / count, f"{name}_min": low, f"{name}_max": high}
        metrics |= self._typed
        self._seen.clear()
        self._typed.clear()
        return metrics

    def state(self) -> dict[str, Any]:
        seen = {name: list(seen) for name, seen in self._seen.items()}
        return {"seen": seen, "typed": {name: to_state(value) for name, value in self._typed.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        self._seen = {name: list(seen) for name, seen in state["seen"].items()}
        self._typed = {name: from_state(value) for name, value in state["typed"].items()}


class Meters:
    """All meters of a run. `report` closes the windows and gives one flat dict."""

    def __init__(self, episode_window: int = 100, update_window: int | None = None):
        self.custom = CustomMeter()
        self.episodes = EpisodeMeter(episode_window, self.custom)
        self.updates = UpdateMeter() if update_window is None else SlidingUpdates(update_window)
        self.phases = PhaseClock()
        self.rates = Rates()

    def record(self, name: str, value: Any) -> None:
        """A number of the user's own, or a Histogram, Image, Video or Table."""
        self.custom.record(name, value)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time that counts for no phase, rate and limit."""
        self.phases.switch(OTHER)
        started = time.monotonic()
        try:
            yield
        finally:
            self.phases.skip()
            self.rates.skip(time.monotonic() - started)

    def present(self) -> dict[str, Any]:
        """What a report would say now of episodes and updates; no window is closed."""
        return self.episodes.report() | self.updates.means()

    def report(self, steps: int, updates: int, **counts: int) -> dict[str, Any]:
        metrics = self.episodes.report() | self.updates.report() | self.custom.report()
        return metrics | self.rates.report(steps=steps, updates=updates, **counts) | self.phases.report()

    def state(self) -> dict[str, Any]:
        clocks = {"phases": self.phases.state(), "rates": self.rates.state()}
        return {
            "episodes": self.episodes.state(),
            "updates": self.updates.state(),
            "custom": self.custom.state(),
            "time": clocks,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.episodes.restore(state["episodes"])
        self.updates.restore(state["updates"])
        self.custom.restore(state["custom"])
        self.phases.restore(state["time"]["phases"])
        self.rates.restore(state["time"]["rates"])
