"""The process that steps one group of envs, as its parent sees it."""

from __future__ import annotations

from rookery.core.system.process import Process
from rookery.core.system.shared_memory import Shared
from rookery.envs.faults import FaultConfig, Patience
from rookery.envs.workers.child import MakeGroup, serve


class EnvProcess(Process):
    """Steps envs rows[0] to rows[1] - 1."""

    title, daemon = "env worker", True
    preload = ("rookery.envs.builders.groups",)

    def __init__(
        self, number: int, rows: tuple[int, int], start: str, faults: FaultConfig, made_of: tuple[Shared, MakeGroup]
    ):
        self.rows = rows
        self.patience, self.steps = Patience(faults), 0  # since the last failure
        self.due = 0.0  # when it must have answered, by the monotonic clock
        super().__init__(number, start, serve, (*made_of, rows, faults))

    @property
    def size(self) -> int:
        """Envs of this worker."""
        return self.rows[1] - self.rows[0]
