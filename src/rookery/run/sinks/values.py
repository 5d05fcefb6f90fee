"""Values of a report that are more than a number. A sink shows what it can and ignores the rest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class Histogram:
    """The distribution of some numbers."""

    values: np.ndarray  # any shape

    def bins(self, count: int = 30) -> tuple[list[int], list[float]]:
        """(counts [n], edges [n + 1]) of the finite numbers."""
        finite = np.asarray(self.values, dtype=np.float64).ravel()
        counts, edges = np.histogram(finite[np.isfinite(finite)], bins=count)
        return counts.tolist(), edges.tolist()


@dataclass(frozen=True, slots=True)
class Image:
    """One picture."""

    pixels: np.ndarray  # uint8 [height, width, 3]


@dataclass(frozen=True, slots=True)
class Video:
    """Pictures in time."""

    frames: np.ndarray  # uint8 [time, height, width, 3]
    fps: float = 30.0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


Value = float | int | str | bool | None | Histogram | Image | Video | Table
Record = dict[str, Any]  # "steps" (env steps so far) and metric → Value


class Sink(Protocol):
    """Where reports go. It may raise: `Sinks` sees to it that this never stops a run."""

    def open(self, folder: Path, resume_step: int | None) -> None:
        """Before the first report; resume_step is the step a resumed run goes on from, None for a new run."""

    def report(self, record: Record) -> None:
        """One report; the record must not be changed."""

    def close(self) -> None:
        """After the last report, also when the run failed."""
