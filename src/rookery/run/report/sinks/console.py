"""Console: the live view of a run on a terminal or in a notebook; elsewhere (CI, pipes, TERM=dumb), now and then an
aligned plain line.

Drawing costs milliseconds, so it is bounded by the clock and not by the number of reports: at most four pictures or
half a line per second. It writes to stderr, which leaves stdout to results.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table as RichTable
from rich.text import Text

from rookery.run.report.clock import PHASES
from rookery.run.report.sinks.base import Sink
from rookery.run.report.sinks.notebook import Cell
from rookery.run.report.sinks.sparkline import Sparkline
from rookery.run.report.sinks.values import Record

REFRESH_SECONDS = 0.25
LINE_SECONDS = 2.0
_COLOURS = ("green", "cyan", "blue", "magenta", "yellow", "bright_blue", "red", "bright_black")  # of PHASES
_RETURN, _EVAL = "episode/return_mean", "eval/return_mean"
_SHOWN = (("return", _RETURN), ("eval", _EVAL))


class Console(Sink):
    """Sink for people. `tick(steps)` may be called every round: it returns at once unless a picture is due."""

    name = "console"

    def __init__(
        self,
        max_steps: int | None = None,
        live: bool = True,
        stream: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
    ):
        self.max_steps = max_steps  # for the progress bar; None: no bar
        self._wants_live, self._stream, self._now = live, stream, now
        self._live: Live | Cell | None = None
        self._title = ""
        self._record: Record = {}  # the last value of every metric
        self._present: Callable[[], Record] = dict  # what has come since the last report
        self._knobs: Record = {}  # the first value of every knob
        self._lines = {_RETURN: Sparkline(), _EVAL: Sparkline()}
        self._steps = 0
        self._due = 0.0
        self._unseen = False  # a report came after the last line
        self._trail: deque[tuple[float, int]] = deque(maxlen=40)  # (time, steps) of pictures, for the rate

    @classmethod
    def from_config(cls, config: Any) -> Console:
        return cls(config.train.max_steps, live=config.log.progress)

    def open(self, folder: Path, resume_step: int | None) -> None:
        self._title, self._steps, self._due = Path(folder).name, resume_step or 0, self._now()
        self._trail.append((self._due, self._steps))
        screen = self._screen()
        if self._wants_live and Cell.here() and self._stream is None:
            self._live = Cell()
        elif self._wants_live and screen.is_terminal and not screen.is_dumb_terminal:
            self._live = Live(console=screen, auto_refresh=False, transient=True, vertical_overflow="crop")
            self._live.start(refresh=False)

    def watch(self, present: Callable[[], Record]) -> None:
        self._present = present

    def report(self, record: Record) -> None:
        """Draw or write, if it is time to; numbers of reports in between are not lost, only not seen."""
        self._take(record)
        self._unseen = True
        self.tick(int(record.get("steps", self._steps)))

    def _take(self, record: Record) -> None:
        self._record |= record
        self._knobs = {name: value for name, value in record.items() if name.startswith("knob/")} | self._knobs
        for name, line in self._lines.items():
            if name in record:
                line.add(record[name])

    def tick(self, steps: int) -> None:
        """Tell how far the run is; cheap."""
        self._steps = steps
        if self._now() >= self._due and (self._live is not None or self._unseen):
            self._show()

    def _show(self) -> None:
        self._trail.append((self._now(), self._steps))
        self._take(self._present())
        try:
            if self._live is not None:
                self._live.update(self.picture(), refresh=True)
            else:
                self._write_line()
        except (OSError, ValueError):  # the terminal or pipe is gone: nobody is looking, the run goes on
            self._due = math.inf
            return
        self._due = self._now() + (REFRESH_SECONDS if self._live is not None else LINE_SECONDS)

    def note(self, text: str) -> None:
        """One line that stays."""
        with contextlib.suppress(OSError, ValueError):  # nobody is looking
            if self._live is not None:
                self._live.console.print(Text(text))
            else:  # not by rich, which ends the program when a pipe is closed
                stream = self._stream or sys.stderr
                stream.write(f"{text}\n")
                stream.flush()

    @contextlib.contextmanager
    def busy(self, text: str) -> Iterator[Callable[[str], None]]:
        """Says what takes its time, with the seconds on a terminal; what it gives writes the closing line."""
        if self._live is None:
            self.note(text)
            yield self.note
            return
        over = threading.Event()
        thread = threading.Thread(target=self._spin, args=(self._live, text, over), daemon=True)
        thread.start()
        try:
            yield self.note
        finally:
            over.set()
            thread.join()

    def _spin(self, live: Live, text: str, over: threading.Event) -> None:
        """In a thread of its own, because the one that draws otherwise is busy."""
        started, spinner = self._now(), Spinner("dots")
        with contextlib.suppress(OSError, ValueError):
            while not over.wait(REFRESH_SECONDS):
                spinner.update(text=f"{text} ({self._now() - started:.0f} s)")
                live.update(Group(spinner, self.picture()), refresh=True)
            live.update(self.picture(), refresh=True)

    def close(self) -> None:
        """The last numbers, then the screen is given back."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._unseen and self._due < math.inf:
            self._show()

    def finish(self, summary: dict[str, Any]) -> None:
        """The result of the run; after `close`."""
        self._screen().print(result(summary))

    def rate(self) -> float:
        """Steps per second over the last pictures; at first, what the report says."""
        (start, before), (end, after) = self._trail[0], self._trail[-1]
        if end - start < 1.0:
            return float(self._record.get("time/steps_per_second", 0.0))
        return (after - before) / (end - start)

    def picture(self) -> RenderableType:
        """Everything the live view shows; fits any width."""
        width = self._screen().width
        lines = {label: self._lines[name] for label, name in _SHOWN if len(self._lines[name]) > 1}
        return Group(self._progress(), *self._numbers(), *_curves(lines, width), *_phase_bar(self._record, width))

    def _screen(self) -> RichConsole:
        if self._live is not None:
            return self._live.console
        return RichConsole(file=self._stream or sys.stderr, highlight=False, soft_wrap=False)

    def _progress(self) -> RenderableType:
        words = [self._title, f"{_count(self._steps)} steps"]
        row = RichTable.grid(padding=(0, 1), expand=True)
        if self.max_steps:
            words[1] = f"{_count(self._steps)} / {_count(self.max_steps)} steps"
            words.append(f"{100 * self._steps / self.max_steps:.0f} %")
        rate = self.rate()
        words.append(f"{_count(round(rate))} steps/s")
        if self.max_steps and rate > 0:
            words.append(f"{_duration((self.max_steps - self._steps) / rate)} left")
        row.add_row(Text(" · ".join(words), overflow="ellipsis", no_wrap=True))
        if self.max_steps:
            row.add_row(ProgressBar(total=self.max_steps, completed=min(self._steps, self.max_steps)))
        return row

    def _numbers(self) -> list[RenderableType]:
        shown = _shown(self._moving())
        if not shown:
            return []
        table = RichTable.grid(padding=(0, 2))
        pairs = [(Text(name, style="dim", no_wrap=True), Text(_number(value), no_wrap=True)) for name, value in shown]
        half = (len(pairs) + 1) // 2
        for i in range(half):
            table.add_row(*pairs[i], *(pairs[half + i] if half + i < len(pairs) else ()))
        return [table]

    def _moving(self) -> Record:
        """The record without the knobs that have stayed what they were: they are in the config."""
        return {name: value for name, value in self._record.items() if self._knobs.get(name) != value}

    def _write_line(self) -> None:
        stream = self._stream or sys.stderr
        total = f"/{self.max_steps}" if self.max_steps else ""
        width = len(str(self.max_steps or 10**7))
        parts = [f"{self._steps:>{width}}{total} steps", f"{self.rate():>8.0f}/s"]
        parts += [f"{name} {_number(value):>9}" for name, value in _shown(self._moving())[:5]]
        stream.write("  ".join(parts) + "\n")
        stream.flush()
        self._unseen = False


def _shown(record: Record) -> list[tuple[str, float]]:
    """What matters most first: returns, evaluation, losses, knobs, then the learner's other numbers; at most 14."""
    numbers = {name: value for name, value in record.items() if isinstance(value, int | float)}
    first = [(label, numbers[name]) for label, name in _SHOWN if name in numbers]
    rest = {name: v for name, v in numbers.items() if not name.startswith(("episode/", "eval/", "time/", "store/"))}
    losses = [(name, value) for name, value in rest.items() if name.endswith("loss")]
    knobs = [(name.removeprefix("knob/"), value) for name, value in rest.items() if name.startswith("knob/")]
    used = {"steps"} | {name for name in rest if name.endswith("loss") or name.startswith("knob/")}
    return (first + losses + knobs + [(name, value) for name, value in rest.items() if name not in used])[:14]


def _curves(lines: dict[str, Sparkline], width: int) -> list[RenderableType]:
    """How returns went so far, from the first report to this one."""
    if not lines:
        return []
    table = RichTable.grid(padding=(0, 2))
    for label, line in lines.items():
        low, high = (_number(value) for value in line.range())
        text = Text(line.drawn(max(min(width - 30, 60), 8)), style="green", no_wrap=True, overflow="crop")
        table.add_row(Text(label, style="dim", no_wrap=True), text, Text(f"{low} … {high}", style="dim", no_wrap=True))
    return [table]


def _phase_bar(record: Record, width: int) -> list[RenderableType]:
    """Where the time goes, as one bar and its legend."""
    shares = [(name, float(record.get(f"time/{name}", 0.0)), colour) for name, colour in zip(PHASES, _COLOURS)]
    shares = [share for share in shares if share[1] >= 0.005]
    if not shares:
        return []
    bar, legend = Text(no_wrap=True, overflow="crop"), Text(overflow="fold")
    for name, share, colour in shares:
        bar.append("█" * round(share * max(width - 1, 1)), style=colour)
        legend.append("■ ", style=colour).append(f"{name} {100 * share:.0f} %  ")
    return [bar, legend]


def result(summary: dict[str, Any]) -> RenderableType:
    """The closing screen, from the content of summary.json; what is missing is left out."""
    table = RichTable.grid(padding=(0, 2))
    evaluation = summary.get("eval") or {}
    rows: list[tuple[str, str | None]] = [
        ("status", _joined(summary.get("status"), summary.get("reason"))),
        ("steps", _count(summary["steps"]) if "steps" in summary else None),
        ("updates", _count(summary["updates"]) if "updates" in summary else None),
        ("episodes", _count(summary["episodes"]) if "episodes" in summary else None),
        ("return", _number(summary["return_mean"]) if summary.get("return_mean") is not None else None),
        (
            "evaluation",
            f"{_number(evaluation['mean'])} ± {_number(evaluation['std'])}"
            if evaluation.get("mean") is not None
            else None,
        ),
        ("resume", _exactness(summary.get("exact"))),
        ("time", _duration(summary["time"]["wall_seconds"]) if summary.get("time") else None),
    ]
    for name, text in rows:
        if text:
            table.add_row(Text(name, style="dim"), Text(text, overflow="fold"))
    return table


def _joined(status: Any, reason: Any) -> str | None:
    return f"{status} ({reason})" if status and reason else status


def _exactness(exact: Any) -> str | None:
    return "exact" if exact is True else f"approximate: {exact}" if exact else None


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")  # narrow enough, and no country reads it as a fraction


def _number(value: float) -> str:
    return _count(value) if isinstance(value, int) else f"{value:.4g}"


def _duration(seconds: float) -> str:
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
