"""The life of a child process: it answers what comes through its pipe until it is told to end or its parent is gone.

A message is a kind, one byte, and what belongs to it: pickled, for only our own live processes talk here.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any, Protocol

from rookery.core.errors import ERRORS, EnvError, RookeryError, UsageError
from rookery.core.system import portable
from rookery.core.system.command import enduring_streams

END, FAILED, HUNG, ANSWER, REQUEST = (bytes([c]) for c in b"efhar")  # first bytes of messages

NOT_SENT = "the answer cannot be sent back from the worker ({problem}). Answer with what can be pickled: numbers, text"


class Servant(Protocol):
    """What lives in a child process."""

    endures: bool  # whether it answers again after an error

    def answer(self, request: bytes) -> bytes: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in a child, as it travels to the parent."""

    text: str
    traceback: str
    error: type[RookeryError] | None  # that has a sentence of its own; None: something unforeseen


def pack(value: Any, kind: bytes = REQUEST) -> bytes:
    """A message between our own live processes."""
    return kind + bytes(ForkingPickler.dumps(value))


def pack_answer(value: Any) -> bytes:
    """What somebody's own function may have answered."""
    try:
        return pack(value, ANSWER)
    except Exception as error:  # whatever an object raises when it is pickled
        raise UsageError(NOT_SENT.format(problem=f"{type(error).__name__}: {error}")) from error


def unpack(message: bytes) -> Any:
    return ForkingPickler.loads(message[1:])


def live(pipe: Connection, parent: int, make: Callable[[], Servant]) -> None:
    """From the first breath to the last; the first answer is the child's pid, when its servant is made."""
    die_with(parent)
    enduring_streams()
    for number in portable.PREEMPT:
        signal.signal(number, signal.SIG_IGN)  # sent to the whole group of processes: the parent decides what it means
    try:
        servant = make()
    except ERRORS as error:  # whatever it is, the parent must be told
        send_failure(pipe, error)
        return
    pipe.send_bytes(pack(os.getpid(), ANSWER))
    while True:
        try:
            request = pipe.recv_bytes()
        except (EOFError, OSError):
            break
        if request == END:
            break
        try:
            pipe.send_bytes(servant.answer(request))
        except ERRORS as error:  # whatever it is, the parent must be told
            send_failure(pipe, error)
            if not servant.endures:
                break
    servant.close()
    leave()


def send_failure(pipe: Connection, error: BaseException) -> None:
    known = type(error) if isinstance(error, RookeryError) else None
    text = str(error) if known else f"{type(error).__name__}: {error}"
    cause = error.__cause__ if isinstance(error, EnvError) and error.__cause__ is not None else error
    trace = "".join(traceback.format_exception(cause))
    try:
        pipe.send_bytes(pack(Failure(text, trace, known), FAILED))
    except (OSError, ValueError):
        sys.exit(1)


def die_with(parent: int) -> None:
    """End when the parent dies, whatever this process is doing then;
    a closed pipe is noticed only between two requests.
    """
    process = multiprocessing.parent_process()
    if process is not None:
        threading.Thread(target=_outlive, args=(process.sentinel,), name="rookery parent", daemon=True).start()
    if not parent:
        return
    if portable.end_with_parent() and os.getppid() != parent:  # it died before we asked
        os._exit(1)


def leave() -> None:
    """The end of a child that has closed what it had.

    To take an interpreter with torch apart costs a second of CPU time, for nobody.

    Only a spawned process has an interpreter of its own to take apart;
    others end so anyway, and exit functions they know are their parent's.
    """
    if multiprocessing.get_start_method(allow_none=True) == "spawn":
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _outlive(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
