"""metrics.csv: one row per report, for spreadsheets and pandas.

A metric that appears later gets a new last column, and the file is written anew; a resumed run first takes back the
rows that came after its checkpoint.
"""

from __future__ import annotations

import csv
import io
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from rookery.core.system.files import open_regular, read_regular
from rookery.run.checkpoints.durable import replace_file
from rookery.run.report.sinks.base import Sink
from rookery.run.report.sinks.values import Record


class CsvFile(Sink):
    """Numbers and words; NaN, infinity and what a report lacks are empty cells, histograms and the like no cells."""

    name = "csv"

    def __init__(self, file: str = "metrics.csv"):
        self._name = file
        self._path: Path | None = None
        self._columns: list[str] = []
        self._rows = 0

    def open(self, folder: Path, resume_step: int | None) -> None:
        """A new run starts with an empty file; a resumed one keeps it until `restore` says how much of it counts."""
        self._path = Path(folder) / self._name
        kept = [] if resume_step is None or not self._path.exists() else self._read()
        self._columns, rows = (kept[0], kept[1:]) if kept else ([], [])
        self._write(rows)

    def report(self, record: Record) -> None:
        cells = {name: cell for name, value in record.items() if (cell := _cell(value)) is not None}
        new = [name for name in cells if name not in self._columns]
        row = [cells.get(name, "") for name in [*self._columns, *new]]
        if new:
            rows = self._read()[1:]
            self._columns += new
            self._write([*rows, row])
            return
        text = io.StringIO(newline="")
        csv.writer(text).writerow(row)
        self._append(text.getvalue().encode())
        self._rows += 1

    def state(self) -> dict[str, Any]:
        self._append(b"")  # what a checkpoint counts is durable
        return {"rows": self._rows}

    def restore(self, state: dict[str, Any]) -> None:
        self._write(self._read()[1 : 1 + int(state["rows"])])

    def close(self) -> None:
        self._path = None

    def _opened(self) -> Path:
        if self._path is None:
            raise RuntimeError(f"{self._name} is not open")
        return self._path

    def _append(self, data: bytes) -> None:
        descriptor = open_regular(self._opened(), os.O_WRONLY | os.O_APPEND)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            size = file.tell()
            try:
                while data:
                    data = data[file.write(data) :]
            except OSError:
                file.truncate(size)  # no half row stays when the disk is full
                raise
            os.fsync(descriptor)

    def _read(self) -> list[list[str]]:
        text = read_regular(self._opened()).decode(errors="replace")
        return list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline="")))

    def _write(self, rows: list[list[str]]) -> None:
        """The whole file, as one: a crash leaves the old one or the new one."""
        text, width = io.StringIO(newline=""), len(self._columns)
        writer = csv.writer(text)
        if width:
            writer.writerow(self._columns)
            writer.writerows([*row, *[""] * (width - len(row))] for row in rows)
        replace_file(self._opened(), text.getvalue().encode())
        self._rows = len(rows)


def _cell(value: Any) -> str | None:
    """As text; None: it is no cell."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return str(value) if isinstance(value, bool | int | float | str) else None
