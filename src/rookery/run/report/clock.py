"""Clocks: where the time goes and how fast things are. Monotonic only; what they say is reported under `time/`.

`PhaseClock` is always in exactly one phase, so the phases add up to the whole. A change costs one reading of the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PHASES = ("env", "act", "transport", "sample", "update", "eval", "checkpoint", "other")
ENV, ACT, TRANSPORT, SAMPLE, UPDATE, EVAL, CHECKPOINT, OTHER = range(len(PHASES))


class PhaseClock:
    """Nanoseconds spent in each phase; starts in `other`."""

    __slots__ = ("_now", "_phase", "_reported", "_since", "_spent")

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns):
        self._now = now
        self._spent = [0] * len(PHASES)
        self._reported = [0] * len(PHASES)
        self._phase = OTHER
        self._since = now()

    def switch(self, phase: int) -> int:
        """Enter a phase (ENV, ACT, …); returns the one that was left, to switch back to."""
        now = self._now()
        before = self._phase
        self._spent[before] += now - self._since
        self._phase = phase
        self._since = now
        return before

    @contextmanager
    def phase(self, phase: int) -> Iterator[None]:
        """`switch` there and back, for what happens seldom."""
        before = self.switch(phase)
        try:
            yield
        finally:
            self.switch(before)

    def add(self, phase: int, nanoseconds: int) -> None:
        """Count time that someone else has measured within the present phase, as time of another phase."""
        self._spent[phase] += nanoseconds
        self._spent[self._phase] -= nanoseconds

    def seconds(self) -> dict[str, float]:
        """Seconds per phase since the run began, resumed parts included."""
        self.switch(self._phase)
        return {name: spent * 1e-9 for name, spent in zip(PHASES, self._spent)}

    def report(self) -> dict[str, float]:
        """Share of each phase in the time since the last report."""
        self.switch(self._phase)
        spent = [now - before for now, before in zip(self._spent, self._reported)]
        self._reported = list(self._spent)
        total = max(sum(spent), 1)
        return {f"time/{name}": part / total for name, part in zip(PHASES, spent)}

    def skip(self) -> None:
        """The time since the last change of phase is nobody's."""
        self._since = self._now()

    def state(self) -> dict[str, Any]:
        """Includes the time that is running, without changing anything."""
        spent = dict(zip(PHASES, self._spent))
        spent[PHASES[self._phase]] += self._now() - self._since
        return {"spent": spent}

    def restore(self, state: dict[str, Any]) -> None:
        self._spent = [int(state["spent"].get(name, 0)) for name in PHASES]
        self._reported = list(self._spent)
        self._since = self._now()


class Rates:
    """Seconds since the run began, and how fast counters have grown since the last report."""

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._start = self._mark = now()
        self._before = 0.0  # seconds of the parts before a resume
        self._counts: dict[str, int] = {}

    def seconds(self) -> float:
        return self._before + self._now() - self._start

    def skip(self, seconds: float) -> None:
        """So much time did not pass for the run."""
        self._start += seconds
        self._mark += seconds

    def report(self, **counts: int) -> dict[str, float]:
        """`report(steps=n)` gives `time/steps_per_second` since the last call, and `time/seconds`."""
        now = self._now()
        elapsed = max(now - self._mark, 1e-9)
        rates = {f"time/{name}_per_second": (n - self._counts.get(name, 0)) / elapsed for name, n in counts.items()}
        self._counts, self._mark = dict(counts), now
        return {"time/seconds": self.seconds()} | rates

    def state(self) -> dict[str, Any]:
        return {"seconds": self.seconds(), "counts": dict(self._counts)}

    def restore(self, state: dict[str, Any]) -> None:
        self._before = float(state["seconds"])
        self._counts = {name: int(n) for name, n in state["counts"].items()}
        self._start = self._mark = self._now()
