"""Lag: how many updates older than the learner's the weights were that collected a chunk, when it is learnt from.

Workers never wait for the learner. One that is too slow for them learns from the newest chunks; the others are dropped, and counted.
"""

from __future__ import annotations

from rookery.run.config.sections import PoolConfig


class Lags:
    """Admits chunks that are not too old, and says how old they were. In rounds there is no lag, and nothing to say."""

    def __init__(self, config: PoolConfig):
        self._asynchronous, self._most, self._room = config.mode == "async", config.max_lag, 2 * config.workers
        self.dropped = 0  # env steps of chunks that were too old, ever
        self._count = self._total = self._worst = 0  # since the last report

    def admits(self, lag: int, steps: int, newer: int = 0) -> bool:
        """`newer`: chunks that wait behind this one, where each is learnt from once: too many, and a newer one is better."""
        if not self._asynchronous:
            return True
        if lag > self._most or newer > self._room:
            self.dropped += steps
            return False
        self._count, self._total, self._worst = self._count + 1, self._total + lag, max(self._worst, lag)
        return True

    def report(self) -> dict[str, float]:
        """Mean and largest lag since the last report, in updates."""
        if not self._asynchronous:
            return {}
        told = {"pool/dropped_steps": float(self.dropped)}
        if self._count:
            told |= {"pool/lag_mean": self._total / self._count, "pool/lag_max": float(self._worst)}
        self._count = self._total = self._worst = 0
        return told
