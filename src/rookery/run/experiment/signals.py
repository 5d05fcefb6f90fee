"""Preemption: SIGTERM, SIGINT and SIGUSR1 ask the run to save and end; a second signal ends it at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from rookery.core.errors import Interrupted
from rookery.core.system.portable import PREEMPT

SIGNALS = PREEMPT
SAME = 0.2  # seconds: signals so close are one request, sent to all processes and again by a scheduler or shell


class Preemption:
    """While entered, the first signal only sets `requested`; the trainer looks at it between updates.

    Signals can be caught in the main thread only: elsewhere, `requested` stays None and nothing is changed.
    """

    def __init__(self) -> None:
        self.requested: int | None = None
        self._before: dict[int, Any] = {}
        self._process = 0
        self._since = 0.0
        self._cuts = False  # whether the first signal raises, too

    def __enter__(self) -> Preemption:
        self.requested = None
        self._process = os.getpid()
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)  # None: it was set outside Python

    @contextmanager
    def cutting(self) -> Iterator[None]:
        """Inside, the first signal raises `Interrupted`, also if it came before: for what is long and can be left."""
        self._cuts = True
        try:
            if self.requested is not None:
                raise Interrupted
            yield
        finally:
            self._cuts = False

    def deliver(self) -> None:
        """After the run: the signal reaches the caller as if nobody had caught it, but for one thing. What would kill
        the process is an exit with the code that a shell gives it, so that the caller's own ends are not cut off."""
        if self.requested is None:
            return
        if signal.getsignal(self.requested) is signal.SIG_DFL:
            raise SystemExit(128 + self.requested)
        signal.raise_signal(self.requested)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        forked = os.getpid() != self._process  # a forked worker inherits handlers but has nothing to save
        if self.requested is None and not forked:
            self.requested, self._since = number, time.monotonic()
            if self._cuts:
                raise Interrupted
            return
        if not forked and time.monotonic() - self._since < SAME:
            return
        self._restore()
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
