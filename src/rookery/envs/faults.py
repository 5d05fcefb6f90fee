"""FaultConfig: how long envs may take and how often they may fail."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rookery.core.section import Section

Seconds = Annotated[float, Field(gt=0, le=1e6)]


class FaultConfig(Section):
    """`env.faults`: deadlines and budgets. A renewal begins the env's next episode and drops the unfinished one."""

    step_seconds: Seconds = 60.0  # an env that takes longer for one step counts as hung
    reset_seconds: Seconds = 300.0  # the same for a reset, and for starting a worker process
    renewals: Annotated[int, Field(ge=0)] = 5  # failures in a row (less than 20 steps apart) that are borne
    backoff_seconds: Annotated[float, Field(ge=0, le=60)] = 0.1  # pause before a renewal; doubled for each in a row

    def pause(self, failures: int) -> float:
        """Seconds to wait before the renewal after so many failures in a row."""
        return min(self.backoff_seconds * 2 ** max(failures - 1, 0), 30.0)
