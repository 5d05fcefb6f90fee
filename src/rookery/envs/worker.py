"""A worker: the process that steps one group of envs. It answers requests until its parent is gone.

A request is one byte for the common case, a plain step, or a pickled tuple (only our own live processes talk here). The
observations, rewards and flags of a step go through shared memory; only what is rare, the ends of episodes, through the pipe.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from rookery.core.errors import EnvError, RookeryError
from rookery.core.sharing import Shared
from rookery.core.tree import flatten, unflatten
from rookery.envs.faults import FaultConfig
from rookery.envs.inprocess import InProcess
from rookery.envs.vector import Step
from rookery.envs.watchdog import Watchdog

STEP, END, PLAIN, MARKED, FAILED, HUNG, ANSWER, REQUEST = (bytes([c]) for c in b"sepmfhar")  # first bytes of messages
MakeGroup = Callable[[int, int], InProcess]  # (first env, one after the last) → the engine of this group


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in a worker, as it travels to the parent."""

    text: str
    traceback: str
    known: bool  # an error with a sentence of its own, or something unforeseen


def pack(value: Any, kind: bytes = REQUEST) -> bytes:
    """A message between our own live processes."""
    return kind + bytes(ForkingPickler.dumps(value))


def unpack(message: bytes) -> Any:
    return ForkingPickler.loads(message[1:])


def serve(
    pipe: Connection, shared: Shared, group: MakeGroup, rows: tuple[int, int], parent: int, faults: FaultConfig
) -> None:
    """The life of a worker."""
    die_with(parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # sent to the whole group of processes: the parent decides what it means
    try:
        engine = group(*rows)
    except Exception as error:  # noqa: BLE001  # whatever it is, the parent must be told
        send_failure(pipe, error)
        return
    pipe.send_bytes(pack(None, ANSWER))
    Watchdog(engine, faults, partial(_hang, pipe))
    Worker(pipe, shared, engine, rows).run()
    leave()


def _hang(pipe: Connection, told: str, shown: str) -> None:
    """The watchdog's report; the main thread is in the env's code, so nobody else writes."""
    with suppress(OSError, ValueError):
        pipe.send_bytes(pack((told, shown), HUNG))
    os._exit(EnvError.exit_code)


class Notes(logging.Handler):
    """What is logged in a worker, until it travels to the parent's log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._notes: list[tuple[int, str]] = []
        own = logging.getLogger("rookery")
        own.handlers, own.propagate = [self], False

    def emit(self, record: logging.LogRecord) -> None:
        self._notes.append((record.levelno, self.format(record)))

    def taken(self) -> list[tuple[int, str]]:
        notes, self._notes = self._notes, []
        return notes


class Worker:
    """One engine and its rows of the shared arrays."""

    def __init__(self, pipe: Connection, shared: Shared, engine: InProcess, rows: tuple[int, int]):
        self.pipe, self.engine, self.first = pipe, engine, rows[0]
        mine = {key: array[rows[0] : rows[1]] for key, array in shared.arrays.items()}
        self._obs = [(mine[f"obs.{key}"], array) for key, array in flatten(engine.obs).items()]
        actions = {key.removeprefix("action."): array for key, array in mine.items() if key.startswith("action.")}
        self._action = unflatten(actions)
        self._episode = mine["episode"]
        self._reward = mine["reward"]
        self._log = Notes()
        self._flags = {key: mine[key] for key in ("terminated", "truncated", "valid")}

    def run(self) -> None:
        while True:
            try:
                request = self.pipe.recv_bytes()
            except (EOFError, OSError):
                break
            if request == END:
                break
            try:
                self._answer(request)
            except Exception as error:  # noqa: BLE001  # whatever it is, the parent must be told
                send_failure(self.pipe, error)
        self.engine.close()

    def _answer(self, request: bytes) -> None:
        if request == STEP:
            self._step(None, None, False)
            return
        name, args = unpack(request)
        if name == "step":
            self._step(*args)
            return
        result = getattr(self, f"do_{name}")(*args)
        self._publish()
        self.pipe.send_bytes(pack(result, ANSWER))

    def _step(self, steps: int | None, episodes: int | None, infos: bool) -> None:
        step = self.engine.step(self._action, steps, episodes)
        self._publish()
        self._reward[:] = step.reward
        told = self._told(step) if step.marked else {}
        if infos:
            told["infos"] = step.infos
        kind = MARKED if step.marked else PLAIN
        self.pipe.send_bytes(pack(told, kind) if told else kind)

    def _told(self, step: Step) -> dict[str, Any]:
        for key, array in self._flags.items():
            array[:] = getattr(step, key)
        for end in step.ended:
            end.env += self.first
        final = [(i + self.first, obs) for i, obs in step.final]
        return {"final": final, "ended": step.ended, "cut": [i + self.first for i in step.cut]} | self._exactness()

    def _exactness(self) -> dict[str, Any]:
        renewals, self.engine.renewals = self.engine.renewals, 0
        return {"exactness": self.engine.exactness, "renewals": renewals, "log": self._log.taken()}

    def _publish(self) -> None:
        for shared, own in self._obs:
            shared[:] = own
        self._episode[:] = self.engine.episodes

    def do_reset(self) -> dict[str, Any]:
        self.engine.reset()
        return self._exactness()

    def do_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return {"found": self.engine.call(name, *args, **kwargs)} | self._exactness()

    def do_state(self) -> dict[str, Any]:
        return self.engine.state()

    def do_restore(self, state: dict[str, Any]) -> dict[str, Any]:
        self.engine.restore(state)
        return {"renewed": np.array(self.engine.renewed)} | self._exactness()

    def do_begin(self, episodes: list[int], settings: list[Any]) -> dict[str, Any]:
        """Take the place of a worker that is gone: what the envs were told, then these episodes."""
        for name, args, kwargs in settings:
            self.engine.call(name, *args, **kwargs)
        self.engine.begin(episodes)
        return self._exactness()


def send_failure(pipe: Connection, error: Exception) -> None:
    known = isinstance(error, RookeryError)
    text = str(error) if known else f"{type(error).__name__}: {error}"
    cause = error.__cause__ if isinstance(error, EnvError) and error.__cause__ is not None else error
    told = "".join(traceback.format_exception(cause))
    try:
        pipe.send_bytes(pack(Failure(text, told, known), FAILED))
    except (OSError, ValueError):
        sys.exit(1)


def die_with(parent: int) -> None:
    """End when the parent dies, whatever this process is doing then; a closed pipe is noticed only between two requests."""
    found = multiprocessing.parent_process()
    if found is not None:
        threading.Thread(target=_outlive, args=(found.sentinel,), name="rookery parent", daemon=True).start()
    if not parent:
        return
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, Linux
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def leave() -> None:
    """The end of a worker that has closed what it had. To take an interpreter with torch apart costs a second of CPU time, for nobody.

    Only a spawned process has an interpreter of its own to take apart; others end so anyway, and exit functions they know are their parent's.
    """
    if multiprocessing.get_start_method(allow_none=True) == "spawn":
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _outlive(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
