"""A worker: the process that steps one group of envs. It answers requests until its parent is gone.

A request is one byte for the common case, a plain step, or a pickled tuple (only our own live processes talk here). The
observations, rewards and flags of a step go through shared memory; only what is rare, the ends of episodes, through the pipe.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from rookery.core.errors import EnvError
from rookery.core.system.child import ANSWER, HUNG, live, pack, unpack
from rookery.core.system.shared_memory import Shared
from rookery.core.tree import flatten, unflatten
from rookery.envs.engines.inprocess import InProcess
from rookery.envs.faults import FaultConfig
from rookery.envs.vector import Step
from rookery.envs.watchdog import Watchdog

STEP, PLAIN, MARKED = (bytes([c]) for c in b"spm")  # first bytes of messages, beside those of all children
MakeGroup = Callable[[int, int], InProcess]  # (first env, one after the last) → the engine of this group


def serve(
    pipe: Connection, parent: int, shared: Shared, group: MakeGroup, rows: tuple[int, int], faults: FaultConfig
) -> None:
    """The life of a worker."""

    def make() -> Worker:
        engine = group(*rows)
        Watchdog(engine, faults, partial(_hang, pipe))
        return Worker(shared, engine, rows)

    live(pipe, parent, make)


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

    endures = True

    def __init__(self, shared: Shared, engine: InProcess, rows: tuple[int, int]):
        self.engine, self.first = engine, rows[0]
        mine = {key: array[rows[0] : rows[1]] for key, array in shared.arrays.items()}
        self._obs = [(mine[f"obs.{key}"], array) for key, array in flatten(engine.obs).items()]
        actions = {key.removeprefix("action."): array for key, array in mine.items() if key.startswith("action.")}
        self._action = unflatten(actions)
        self._episode = mine["episode"]
        self._reward = mine["reward"]
        self._log = Notes()
        self._flags = {key: mine[key] for key in ("terminated", "truncated", "valid")}

    def answer(self, request: bytes) -> bytes:
        if request == STEP:
            return self._step(None, None, False)
        name, args = unpack(request)
        if name == "step":
            return self._step(*args)
        result = getattr(self, f"do_{name}")(*args)
        self._publish()
        return pack(result, ANSWER)

    def close(self) -> None:
        self.engine.close()

    def _step(self, steps: int | None, episodes: int | None, infos: bool) -> bytes:
        step = self.engine.step(self._action, steps, episodes)
        self._publish()
        self._reward[:] = step.reward
        told = self._told(step) if step.marked else {}
        if infos:
            told["infos"] = step.infos
        kind = MARKED if step.marked else PLAIN
        return pack(told, kind) if told else kind

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
