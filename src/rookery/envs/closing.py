"""Closing envs: what an env does in `close` never fails a run, and cannot keep it waiting for ever.

`close` is called in the main thread where envs are stepped there, for windows and databases may insist on it: a timer
interrupts one that takes too long. Elsewhere it gets a thread of its own, which is left behind.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rookery.core.system.portable import CAN_ALARM, alarm
from rookery.envs.faults import ERRORS, place

log = logging.getLogger(__name__)
SECONDS = 10.0  # for all envs of an engine


class _TooLong(BaseException):
    """Raised by the timer inside of a `close`; no Exception, so that an env's own `except` does not swallow it."""


def close_all(envs: Sequence[Any], name: str, level: int = logging.WARNING) -> None:
    """Close every env; what goes wrong is told in one line."""
    if problem := close_problem(envs):
        log.log(level, "%s: %s. What was learnt and saved does not depend on it.", name, problem)


def close_problem(envs: Sequence[Any]) -> str | None:
    """Close every env that has a `close`; what went wrong, if anything did."""
    problems: list[str] = []

    def close() -> None:
        for env in envs:
            try:
                getattr(env, "close", lambda: None)()
            except ERRORS as error:
                problems.append(f"close failed: {type(error).__name__}: {error}{place(error)}")

    if not _within(SECONDS, close):
        problems.append(f"close did not return within {SECONDS:g} s and was given up")
    return "; ".join(dict.fromkeys(problems)) or None


def _within(seconds: float, call: Callable[[], None]) -> bool:
    """Whether the call returned in time."""
    if threading.current_thread() is threading.main_thread() and CAN_ALARM:
        try:
            with alarm(seconds, _TooLong):
                call()
        except _TooLong:
            return False
        return True
    thread = threading.Thread(target=call, name="rookery close", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()
