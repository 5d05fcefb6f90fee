"""Curriculum: a callback that makes the task harder when a metric of the reports passes thresholds.

A public name, so it stands alone."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from rookery.core.errors import UsageError
from rookery.run.callbacks.base import Callback
from rookery.run.report.progress import Progress

log = logging.getLogger("rookery.run")


class Curriculum(Callback):
    """Calls `method(phase)` on every training env: phase 0 at the start, then p + 1 when `metric` reaches
    thresholds[p].

    At most one phase per report: the metric was measured in the phase that is left. Evaluation envs are not told.

    Args:
        method: of the envs, called with the phase, 0, 1, 2 …
        metric: of the report, compared with the threshold of the phase.
        thresholds: one number per step up; the first leads from phase 0 to 1.
    """

    def __init__(
        self, method: str = "set_phase", metric: str = "episode/return_mean", thresholds: Sequence[float] = ()
    ):
        if not thresholds or not all(math.isfinite(value) for value in thresholds):
            raise UsageError(
                f"Curriculum needs thresholds of {metric}, one finite number per step up, e.g. thresholds=[50, 100]; "
                f"got {thresholds!r}"
            )
        self.method, self.metric, self.thresholds = method, metric, [float(value) for value in thresholds]
        self.phase: int | None = None  # None: the envs were told nothing yet

    def run_start(self, progress: Progress) -> None:
        if self.phase is None:  # a resumed run's envs are told again by themselves, before their episodes are replayed
            self._enter(0, progress)

    def report(self, progress: Progress) -> None:
        value, phase = progress.metrics.get(self.metric), self.phase or 0
        if value is not None and phase < len(self.thresholds) and value >= self.thresholds[phase]:
            log.info("curriculum: %s = %g, phase %d begins", self.metric, value, phase + 1)
            self._enter(phase + 1, progress)

    def _enter(self, phase: int, progress: Progress) -> None:
        self.phase = phase
        progress.foreach_env(self.method, phase)

    def state(self) -> dict[str, Any]:
        return {"phase": self.phase}

    def restore(self, state: dict[str, Any]) -> None:
        self.phase = None if state["phase"] is None else int(state["phase"])
