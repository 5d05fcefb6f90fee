"""Sinks: hand every report to every sink. Whatever a sink does, the run goes on."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rookery.core.errors import ERRORS
from rookery.run.report.sinks.base import Sink, checked
from rookery.run.report.sinks.values import Record

ATTEMPTS = 3  # failures in a row after which a sink is switched off
_log = logging.getLogger(__name__)


def name_of(sink: Sink) -> str:
    return sink.name or type(sink).__name__


class _Guarded:
    """One sink with its record of failures."""

    def __init__(self, sink: Sink):
        self.sink, self.name = sink, name_of(sink)
        self.opened = False
        self.failures = 0  # in a row
        self._warned = False

    @property
    def off(self) -> bool:
        return self.failures >= ATTEMPTS

    def attempt(self, call: Callable[[], Any]) -> Any:
        """call(), or None if it raised; a warning the first time, and when the sink is given up."""
        try:
            result = call()
        except ERRORS as error:  # a sink is anyone's code: no error of it may end a run
            self.failed(error)
            return None
        self.failures = 0
        return result

    def failed(self, error: BaseException) -> None:
        """Count it, and say it once."""
        self.failures += 1
        if not self._warned:
            self._warned = True
            _log.warning("sink %s failed: %s: %s; the run goes on", self.name, type(error).__name__, error)
        if self.failures == ATTEMPTS:
            _log.warning("sink %s failed %d times in a row and is switched off", self.name, ATTEMPTS)

    def tick(self, steps: int) -> None:
        """Like `attempt`, but quick, and a tick that works does not excuse a report that does not."""
        if self.failures < ATTEMPTS:
            try:
                self.sink.tick(steps)
            except ERRORS as error:  # as above
                self.failed(error)

    @contextlib.contextmanager
    def busy(self, text: str) -> Iterator[Callable[[str], None]]:
        """`busy` of the sink, none of whose three calls can stop what is being done."""
        around = self.attempt(lambda: self.sink.busy(text))
        say = None if around is None else self.attempt(around.__enter__)
        try:
            yield (lambda line: None) if say is None else (lambda line: self.attempt(lambda: say(line)))
        finally:
            if say is not None:
                self.attempt(lambda: around.__exit__(None, None, None))

    def open(self, folder: Path, resume_step: int | None) -> None:
        def call() -> None:
            self.sink.open(folder, resume_step)
            self.opened = True

        self.attempt(call)


class Sinks:
    """A list of sinks as one. A sink that raises is warned about once, tried again, and after a few times switched
    off."""

    def __init__(self, sinks: Iterable[Sink]):
        self._sinks = [_Guarded(sink) for sink in checked(sinks)]
        self._folder = Path()
        self._resume_step: int | None = None
        self._saved: dict[str, Any] = {}  # states of sinks that are still to be rolled back

    def open(self, folder: Path, resume_step: int | None = None) -> None:
        self._folder, self._resume_step = Path(folder), resume_step
        for guarded in self._sinks:
            guarded.open(self._folder, resume_step)

    def report(self, record: Record) -> None:
        for guarded in self._sinks:
            if not guarded.opened and not guarded.off:
                guarded.open(self._folder, self._resume_step)
                self._restore(guarded)
            if guarded.opened and not guarded.off:
                guarded.attempt(lambda guarded=guarded: guarded.sink.report(record))  # type: ignore[misc]

    def ticks(self) -> list[Callable[[int], None]]:
        """`tick` of the sinks that have one of their own: called after every round, so nobody else is asked."""
        return [guarded.tick for guarded in self._sinks if type(guarded.sink).tick is not Sink.tick]

    def watch(self, present: Callable[[], Record]) -> None:
        for guarded in self._sinks:
            guarded.attempt(lambda guarded=guarded: guarded.sink.watch(present))  # type: ignore[misc]

    def note(self, text: str) -> None:
        """One line for people."""
        for guarded in self._sinks:
            guarded.attempt(lambda guarded=guarded: guarded.sink.note(text))  # type: ignore[misc]

    @contextlib.contextmanager
    def busy(self, text: str) -> Iterator[Callable[[str], None]]:
        """Around what takes its time; what it gives tells every sink how it ended."""
        with contextlib.ExitStack() as stack:
            ends = [stack.enter_context(guarded.busy(text)) for guarded in self._sinks]

            def say(line: str) -> None:
                for end in ends:
                    end(line)

            yield say

    def close(self) -> None:
        for guarded in self._sinks:
            if guarded.opened:
                guarded.opened = False
                guarded.attempt(guarded.sink.close)

    def state(self) -> dict[str, Any]:
        """What the sinks that have a state must be rolled back to."""
        states = {g.name: g.attempt(g.sink.state) for g in self._sinks if g.opened}
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, state: dict[str, Any]) -> None:
        """After `open`: roll back what was reported after the checkpoint."""
        self._saved = dict(state)
        for guarded in self._sinks:
            self._restore(guarded)

    def _restore(self, guarded: _Guarded) -> None:
        """Once per sink: for one that could not be opened in time, when it is."""
        if guarded.opened and guarded.name in self._saved:
            state = self._saved.pop(guarded.name)
            guarded.attempt(lambda: guarded.sink.restore(state))


class Background(Sink):
    """Runs a slow sink in a thread of its own, so that neither its import nor its disk or server makes the run wait.

    If it cannot keep up, reports are dropped and counted. An error appears in the next `report`. Ticks, notes and
    states stay with sinks that are not in the background: a state would be that of another moment.
    """

    def __init__(self, sink: Sink, size: int = 256, grace: float = 5.0):
        self.sink, self.name = sink, name_of(sink)
        self.dropped = 0
        self._grace = grace  # seconds that close() waits
        self._queue: queue.Queue[Record | None] = queue.Queue(size)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def open(self, folder: Path, resume_step: int | None) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(folder, resume_step), name=f"sink-{self.name}", daemon=True
        )
        self._thread.start()

    def report(self, record: Record) -> None:
        try:
            self._queue.put_nowait(dict(record))
        except queue.Full:
            self.dropped += 1
            if self.dropped == 1:
                _log.warning("sink %s is slower than the reports: some are dropped", self.name)
        self._raise_error()

    def close(self) -> None:
        """Wait for what is queued, but not longer than the grace time."""
        if self._thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=self._grace)
        self._thread.join(self._grace)
        if self._thread.is_alive():
            _log.warning("sink %s did not finish within %g s; its last reports may be lost", self.name, self._grace)
        self._thread = None
        self._raise_error()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, folder: Path, resume_step: int | None) -> None:
        opened = self._try(lambda: self.sink.open(folder, resume_step))
        while (record := self._queue.get()) is not None:
            if not opened:
                opened = self._try(lambda: self.sink.open(folder, resume_step))
            if opened:
                self._try(lambda: self.sink.report(record))
        if opened:
            self._try(self.sink.close)

    def _try(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except ERRORS as error:  # a sink is anyone's code; handed to the caller of report()
            self._error = error
            return False
        return True
