"""Watchdog: a thread that notices an env which does not come back from `step` or `reset`.

In a worker process its report goes to the parent, which starts another worker. Where envs are stepped in the process of
the run there is nobody to go on: the stacks of all threads are shown and the process ends with exit code 3.

It sees only whether anything moves, so stepping pays nothing for it. Code that never lets other threads run (a C
extension that keeps the interpreter's lock) stops the watchdog as well: then only a worker process can be
helped, by its parent's deadline.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rookery.core.errors import EnvError
from rookery.envs.faults import FaultConfig

log = logging.getLogger(__name__)
LONGEST_NAP = 1.0  # seconds
DEBUGGERS = ("bdb.py", "pdb.py", "pydevd.py")  # files of those who may keep a step waiting for a person

Hung = Callable[[str, str], None]  # (which env, since when and where; the stacks of all threads)
last_words: list[
    Callable[[EnvError], None]
] = []  # called before the process is ended: a run that wants to say how it ended


class Watchdog:
    """Looks at `engine.doing` from time to time; `hung` is called once, in the watchdog's thread."""

    def __init__(self, engine: Any, faults: FaultConfig, hung: Hung):
        self._engine, self._faults, self._hung = weakref.ref(engine), faults, hung
        self._nap = min(min(faults.step_seconds, faults.reset_seconds) / 20, LONGEST_NAP)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rookery watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        key, still, before = None, 0.0, time.monotonic()
        while not self._over.wait(self._nap):
            engine = self._engine()
            if engine is None:
                return
            doing, now = engine.doing, time.monotonic()
            del engine
            same = doing is not None and doing[0] == key
            # a process that was stopped for a while (SIGSTOP) is not to blame for it
            still = still + min(now - before, 2 * self._nap) if same else 0.0
            key, before = None if doing is None else doing[0], now
            if doing is None:
                continue
            limit = self._faults.reset_seconds if doing[2] else self._faults.step_seconds
            if still > limit and not _debugged():
                name = "reset" if doing[2] else "step"
                self._hung(f"{doing[1]}: {name} has not returned for {limit:g} s (env.faults.{name}_seconds)", stacks())
                return


def end_process(problem: str, shown: str, rescue: str = "env.workers=subprocess such an env") -> None:
    """The end of a process whose own envs hang; `rescue`: where somebody could have helped."""
    end_with(EnvError(f"{problem}. Nothing can interrupt it here; with {rescue} is ended and renewed."), shown)


def end_with(error: EnvError, shown: str = "") -> None:
    """The end of a process that cannot go on, though the thread that would have to say so waits for ever."""
    with suppress(OSError, ValueError, AttributeError):  # nobody is there to read it
        sys.stderr.write(f"{shown}\nerror: {error}\n")
        sys.stderr.flush()
    for say in last_words:
        try:
            say(error)
        except Exception:  # nothing may keep it from ending
            log.exception("while the process was ended")
    for child in multiprocessing.active_children():
        child.kill()  # a worker of gymnasium's that hangs would stay for ever
    os._exit(EnvError.exit_code)


def end_unworkable(problem: str, shown: str) -> None:
    """The same for envs that env.workers cannot have: vector engines."""
    end_process(problem, shown, "pool=process the worker")


def stacks() -> str:
    """Where every thread is, as text."""
    names, own = {thread.ident: thread.name for thread in threading.enumerate()}, threading.get_ident()
    parts = []
    for ident, frame in sys._current_frames().items():
        if ident != own:
            parts.append(f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)


def _debugged() -> bool:
    for frame in sys._current_frames().values():
        for summary in traceback.walk_stack(frame):
            if summary[0].f_code.co_filename.endswith(DEBUGGERS):
                return True
    return False
