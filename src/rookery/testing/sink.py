"""What a run relies on in a sink: it takes whatever a report holds, survives a resume, and may be closed at any time.

from rookery.testing.sink import SinkContract

class TestMine(SinkContract):
    def make(self):
        return MySink("lines.txt")

    def written(self, folder):  # optional: the steps of the reports that can be read back, in order
        return [int(line.split()[0]) for line in (folder / "lines.txt").read_text().splitlines()]
"""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rookery.run.report.sinks import Histogram, Image, Record, Sink, Sinks, Table, Video
from rookery.testing.comparing import assert_same, through_checkpoint

_PICTURE = np.zeros((2, 2, 3), np.uint8)
ODD: Record = {  # everything that a metric may be
    "nan": math.nan,
    "infinity": -math.inf,
    "nothing": None,
    "word": "text with\nlines and ünïcode",
    "yes": True,
    "large": 2**70,
    "f32": np.float32(0.5),
    "i64": np.int64(7),
    "histogram": Histogram(np.array([1.0, math.nan, 2.0])),
    "nowhere": Histogram(np.zeros(0)),
    "picture": Image(_PICTURE),
    "video": Video(_PICTURE[None]),
    "table": Table(("map", "wins"), (("a", 1), ("b", None))),
}


class SinkContract:
    """Inherit it and define `make`."""

    def make(self) -> Sink:
        """A new sink that was not opened yet; always of the same files."""
        raise TypeError(f"{type(self).__name__} must define make(self), which returns a new Sink")

    def written(self, folder: Path) -> list[int] | None:
        """Steps of the reports that can be read back from the folder, in order. None: they cannot, so only what is
        raised is noticed."""
        return None

    # --- what must hold ---

    def test_it_inherits_the_base_and_has_a_name_of_its_own(self) -> None:
        sink = self.make()
        Sinks([sink])  # refuses what does not inherit it
        assert sink.name or type(sink) is not Sink

    def test_every_report_arrives_in_order(self) -> None:
        with folder() as place:
            self._reports(place, None, range(1, 6))
            self._wrote(place, [1, 2, 3, 4, 5])

    def test_it_takes_whatever_a_report_holds_and_changes_nothing_in_it(self) -> None:
        with folder() as place:
            sink, record = self.make(), {"steps": 1, **ODD}
            sink.open(place, None)
            before = copy.deepcopy(record)
            sink.report(record)
            for name, value in ODD.items():
                sink.report({"steps": 2, name: value})
            sink.report({"steps": 3})
            sink.close()
            assert_same(list(before), list(record), "the names of a record before and after")
            assert all(before[name] == record[name] for name in ("steps", "word", "yes", "large"))
            self._wrote(place, [1, *[2] * len(ODD), 3])

    def test_a_new_run_does_not_go_on_with_the_reports_of_another(self) -> None:
        with folder() as place:
            self._reports(place, None, [1, 2])
            self._reports(place, None, [1, 2, 3])
            self._wrote(place, [1, 2, 3])

    def test_a_resumed_run_takes_back_what_came_after_its_checkpoint(self) -> None:
        with folder() as place:
            sink = self.make()
            sink.open(place, None)
            for step in (1, 2):
                sink.report({"steps": step})
            state = sink.state()
            for step in (3, 4):
                sink.report({"steps": step})
            sink.close()
            again = self.make()
            again.open(place, 2)
            if state is not None:
                again.restore(through_checkpoint(state))
            for step in (3, 4, 5):
                again.report({"steps": step})
            again.close()
            self._wrote(place, [1, 2, 3, 4, 5])

    def test_ticks_notes_and_waiting_are_taken_at_any_time(self) -> None:
        with folder() as place:
            sink = self.make()
            sink.open(place, None)
            for step in range(50):
                sink.tick(step)
            sink.note("one line")
            with sink.busy("compiling") as say:
                say("compiled")
            sink.close()

    def test_it_can_be_closed_twice_and_without_being_opened(self) -> None:
        with folder() as place:
            self.make().close()
            sink = self.make()
            sink.open(place, None)
            sink.report({"steps": 1})
            sink.close()
            sink.close()

    # --- how it is looked at ---

    def _reports(self, place: Path, resume_step: int | None, steps: list[int] | range) -> None:
        sink = self.make()
        sink.open(place, resume_step)
        for step in steps:
            sink.report({"steps": step, "q/loss": 1.0 / step})
        sink.close()

    def _wrote(self, place: Path, steps: list[int]) -> None:
        written = self.written(place)
        assert written is None or written == steps, f"reports of steps {steps} were due, {written} can be read back"


@contextmanager
def folder() -> Iterator[Path]:
    """A run's folder, for one test."""
    with tempfile.TemporaryDirectory(prefix="rookery-") as path:
        yield Path(path)
