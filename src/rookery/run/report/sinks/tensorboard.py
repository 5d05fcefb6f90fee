"""TensorBoard event files. The library is imported by `open`, because the import takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rookery.core.system.files import check_folder
from rookery.run.report.sinks.base import Sink
from rookery.run.report.sinks.fanout import Background
from rookery.run.report.sinks.values import Histogram, Image, Record, Table


class TensorBoard(Sink):
    """Scalars, histograms, pictures and tables (as text); videos are ignored."""

    name = "tensorboard"

    def __init__(self, folder: str = "tensorboard"):
        self._folder = folder
        self._writer: Any = None
        self._summary: Any = None  # type of an event's numbers

    @classmethod
    def from_config(cls, config: Any) -> Background:
        """In a thread of its own: neither its import nor its disk makes the run wait."""
        return Background(cls())

    def open(self, folder: Path, resume_step: int | None) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from torch.utils.tensorboard import SummaryWriter

        target = Path(folder) / self._folder
        check_folder(target)
        # hides events after the checkpoint that the run resumes from (those of that step itself stay), or all events of
        # an earlier attempt that was killed before its first checkpoint
        again = target.is_dir() and any(target.iterdir())
        purge = resume_step + 1 if resume_step is not None else 0 if again else None
        self._summary = Summary
        self._writer = SummaryWriter(str(target), purge_step=purge, flush_secs=10)

    def report(self, record: Record) -> None:
        """All numbers in one event: one event for each would keep the interpreter from a fast run for up to a fifth of
        its time."""
        step = int(record["steps"])
        numbers = self._summary()
        for name, value in record.items():
            if not isinstance(value, int | float | np.number | np.bool_):
                self._add(name, value, step)
            elif name != "steps":
                numbers.value.add(tag=name, simple_value=float(value))
        self._writer.file_writer.add_summary(numbers, step)

    def _add(self, name: str, value: Any, step: int) -> None:
        if isinstance(value, Histogram):
            finite = np.asarray(value.values).ravel()
            finite = finite[np.isfinite(finite)]
            if finite.size:
                self._writer.add_histogram(name, finite, step)
        elif isinstance(value, Image):
            self._writer.add_image(name, value.pixels, step, dataformats="HWC")
        elif isinstance(value, Table):
            self._writer.add_text(name, _markdown(value), step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _markdown(table: Table) -> str:
    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
