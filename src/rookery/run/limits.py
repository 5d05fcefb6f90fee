"""Limits: when a run is over, and which chunks are too old. It stands alone, so that the loop reads as one piece."""

from __future__ import annotations

from typing import Any

from rookery.core.chunk import Chunk
from rookery.run.config.sections import PoolConfig, TrainConfig

GOAL = "reached train.stop"  # in the reason of a run that ended at a goal


class Lags:
    """Admits chunks that are not too old, and says how old they were. In rounds there is no lag, and nothing to say."""

    def __init__(self, config: PoolConfig):
        self._asynchronous, self._most, self._room = config.mode == "async", config.max_lag, 2 * config.workers
        self.dropped = 0  # env steps of chunks that were too old, ever
        self._count = self._total = self._worst = 0  # since the last report

    def admits(self, lag: int, chunk: Chunk, newer: int = 0) -> bool:
        """`newer`: chunks that wait behind this one, where each is learnt from once: too many, and a newer one is
        better."""
        if not self._asynchronous:
            return True
        if lag > self._most or newer > self._room:
            self.dropped += chunk.steps
            return False
        self._count, self._total, self._worst = self._count + 1, self._total + lag, max(self._worst, lag)
        return True

    def report(self) -> dict[str, float]:
        """Mean and largest lag since the last report, in updates."""
        if not self._asynchronous:
            return {}
        metrics = {"pool/dropped_steps": float(self.dropped)}
        if self._count:
            metrics |= {"pool/lag_mean": self._total / self._count, "pool/lag_max": float(self._worst)}
        self._count = self._total = self._worst = 0
        return metrics


class RunLimits:
    """Those of `train.max_…` that are set: asked after every round, so nothing else is counted."""

    def __init__(self, train: TrainConfig):
        counts = {"max_steps": "ticks", "max_updates": "updates", "max_episodes": "episodes", "max_seconds": "seconds"}
        limits = [(key, getattr(train, key), count) for key, count in counts.items()]
        self._limits = [each for each in limits if each[1] is not None]

    def reached(self, run: Any) -> str | None:
        """The first limit that is reached, as a sentence; `run` has the counts."""
        for key, limit, count in self._limits:
            if getattr(run, count) >= limit:
                early = "" if run.updates else " before the first update: raise it, or let learning begin earlier"
                return f"train.{key}={f'{limit:g}' if key == 'max_seconds' else limit} reached{early}"
        return None


def goal_reached(train: TrainConfig, metrics: dict[str, Any]) -> str | None:
    """The first goal of train.stop that these metrics reach, as a sentence."""
    for name, goal in train.stop.items():
        value = metrics.get(name)
        if isinstance(value, float | int) and value >= goal:
            return f"{name} = {value:.6g} {GOAL} {goal:g}"
    return None
