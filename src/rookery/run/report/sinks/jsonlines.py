"""metrics.jsonl: one JSON object per report. A resumed run first cuts off what was written after its checkpoint."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from rookery.core.system import portable
from rookery.core.system.files import open_regular
from rookery.run.experiment.folder import plain
from rookery.run.report.sinks.base import Sink
from rookery.run.report.sinks.values import Histogram, Image, Record, Table, Video

_log = logging.getLogger(__name__)


class JsonLines(Sink):
    """Every line is on its way to the disk when `report` returns; NaN and infinity are written as null."""

    name = "jsonl"

    def __init__(self, file: str = "metrics.jsonl"):
        self._name = file
        self._path = Path(file)
        self._descriptor: int | None = None
        self._size = 0  # bytes of whole lines

    def open(self, folder: Path, resume_step: int | None) -> None:
        """A new run starts with an empty file; a resumed one keeps it until `restore` says how much of it counts."""
        self._path = Path(folder) / self._name
        self._descriptor = open_regular(self._path, portable.CREATE)
        if resume_step is None:
            os.ftruncate(self._descriptor, 0)
        self._size = os.fstat(self._descriptor).st_size

    def report(self, record: Record) -> None:
        line = json.dumps(_jsonable(record), allow_nan=False, separators=(",", ":")).encode() + b"\n"
        descriptor = self._opened()
        try:
            view = memoryview(line)
            done = 0
            while done < len(line):
                done += portable.write_at(descriptor, view[done:], self._size + done)
        except OSError:
            os.ftruncate(descriptor, self._size)  # no half line stays when the disk is full
            raise
        self._size += len(line)

    def offset(self) -> int:
        """Bytes written so far, durable: what a checkpoint remembers."""
        os.fsync(self._opened())
        return self._size

    def rollback(self, offset: int) -> None:
        """Cut the file to what it was when `offset` was taken.

        If it is shorter than that, or was edited, whole lines up to there are kept and the loss is logged.
        """
        descriptor = self._opened()
        end = self._last_line_end(min(offset, os.fstat(descriptor).st_size))
        if end != offset:
            _log.warning(
                "%s was changed outside the run: expected %d bytes, kept the %d bytes of whole lines up to there",
                self._path,
                offset,
                end,
            )
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)
        self._size = end

    def state(self) -> dict[str, Any]:
        return {"bytes": self.offset()}

    def restore(self, state: dict[str, Any]) -> None:
        self.rollback(int(state["bytes"]))

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is None:
            raise RuntimeError(f"{self._path} is not open")
        return self._descriptor

    def _last_line_end(self, end: int) -> int:
        """The largest position ≤ end that is 0 or just behind a line feed."""
        while end > 0:
            start = max(0, end - 4096)
            newline = portable.read_at(self._opened(), end - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return 0


def _jsonable(record: Record) -> Any:
    line: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Histogram):
            counts, edges = value.bins()
            line[key] = {"counts": counts, "edges": edges}
        elif isinstance(value, Table):
            line[key] = {"columns": list(value.columns), "rows": [list(row) for row in value.rows]}
        elif not isinstance(value, Image | Video):
            line[key] = value
    return plain(line)
