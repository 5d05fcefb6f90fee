"""Values of a report that are more than a number. A sink shows what it can and ignores the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


TYPED = {cls.__name__: cls for cls in (Histogram, Image, Video, Table)}
Value = float | int | str | bool | None | Histogram | Image | Video | Table
Record = dict[str, Any]  # "steps" (env steps so far) and metric → Value


def to_state(value: Any) -> dict[str, Any]:
    """A typed value as arrays and JSON, for a checkpoint."""
    fields = {name: getattr(value, name) for name in value.__slots__}
    fields = {name: list(map(list, part)) if name == "rows" else part for name, part in fields.items()}
    return {"type": type(value).__name__} | {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}


def from_state(state: dict[str, Any]) -> Any:
    """The inverse of `to_state`."""
    fields = {name: part for name, part in state.items() if name != "type"}
    if state["type"] == "Table":
        return Table(tuple(fields["columns"]), tuple(map(tuple, fields["rows"])))
    return TYPED[state["type"]](**fields)


def record_state(record: Record) -> dict[str, Any]:
    """A report, for a checkpoint."""
    return {name: to_state(value) if type(value).__name__ in TYPED else value for name, value in record.items()}


def record_from(state: dict[str, Any]) -> Record:
    """The inverse of `record_state`."""
    return {name: from_state(value) if isinstance(value, dict) else value for name, value in state.items()}
