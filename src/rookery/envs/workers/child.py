"""A worker: the process that steps one group of envs. It answers requests until its parent is gone.

A request is one byte for the common case, a plain step, or a pickled tuple (only our own live processes talk here).
The observations, rewards, flags and turns of a step go through shared memory (`Columns`, of every agent); only what is
rare, the ends of episodes, through the pipe.
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
from rookery.core.system.child import HUNG, live, pack, pack_answer, unpack
from rookery.core.system.shared_memory import Shared
from rookery.core.tree import Tree, flatten, unflatten
from rookery.envs.engines.inprocess import InProcess
from rookery.envs.faults import FaultConfig
from rookery.envs.multi.engine import Agents
from rookery.envs.multi.env import MultiEnv, MultiStep
from rookery.envs.multi.one_agent import OneAgent
from rookery.envs.watchdog import Watchdog

STEP, PLAIN, MARKED = (bytes([c]) for c in b"spm")  # first bytes of messages, beside those of all children
FLAGS = ("terminated", "truncated", "valid")
MakeGroup = Callable[[int, int], InProcess | Agents]  # (first env, one after the last) → the engine of this group


def layout(env: MultiEnv, num: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """What `num` envs like this one say and are told, as arrays that several processes see."""
    arrays: dict[str, tuple[tuple[int, ...], Any]] = {"episode": ((num,), np.int64), "stepped": ((num,), np.bool_)}
    for k, agent in enumerate(env.agents):
        for part, spec in (("obs", env.obs_spec[agent]), ("action", env.action_spec[agent])):
            leaves = flatten(spec).items()
            arrays |= {f"{k}.{part}.{path}": ((num, *leaf.shape), leaf.dtype) for path, leaf in leaves}
        arrays |= {f"{k}.{name}": ((num,), np.bool_) for name in (*FLAGS, "acting")}
        arrays[f"{k}.reward"] = ((num,), np.float32)
    return arrays


class Columns:
    """The shared arrays of the k-th agent, in all envs or in some."""

    def __init__(self, shared: Shared, k: int, rows: slice = slice(None)):
        named = {key.partition(".")[2]: array[rows] for key, array in shared.arrays.items() if key.startswith(f"{k}.")}
        self.obs, self.action = _tree(named, "obs."), _tree(named, "action.")
        self.reward, self.acting = named["reward"], named["acting"]
        self.flags = {name: named[name] for name in FLAGS}


def _tree(arrays: dict[str, np.ndarray], prefix: str) -> Tree:
    return unflatten({key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)})


def serve(
    pipe: Connection, parent: int, shared: Shared, group: MakeGroup, rows: tuple[int, int], faults: FaultConfig
) -> None:
    """The life of a worker."""

    def make() -> Worker:
        engine = group(*rows)
        Watchdog(engine, faults, partial(_hang, pipe))
        return Worker(shared, engine if isinstance(engine, Agents) else OneAgent(engine), rows)

    live(pipe, parent, make)


def _hang(pipe: Connection, problem: str, shown: str) -> None:
    """The watchdog's report; the main thread is in the env's code, so nobody else writes."""
    with suppress(OSError, ValueError):
        pipe.send_bytes(pack((problem, shown), HUNG))
    os._exit(EnvError.exit_code)


class Notes(logging.Handler):
    """What is logged in a worker, until it travels to the parent's log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.waiting: list[tuple[int, str]] = []
        own = logging.getLogger("rookery")
        own.handlers, own.propagate = [self], False

    def emit(self, record: logging.LogRecord) -> None:
        self.waiting.append((record.levelno, self.format(record)))

    def taken(self) -> list[tuple[int, str]]:
        notes, self.waiting = self.waiting, []
        return notes


class Worker:
    """One engine and its rows of the shared arrays."""

    endures = True

    def __init__(self, shared: Shared, engine: Agents | OneAgent, rows: tuple[int, int]):
        self.engine, self.first = engine, rows[0]
        mine = slice(*rows)
        self._columns = {agent: Columns(shared, k, mine) for k, agent in enumerate(engine.agents)}
        pairs = [(part.obs, engine.obs[agent]) for agent, part in self._columns.items()]
        self._obs = [(flatten(theirs)[path], own) for theirs, obs in pairs for path, own in flatten(obs).items()]
        self._episode, self._stepped = shared.arrays["episode"][mine], shared.arrays["stepped"][mine]
        self._log, self._known = Notes(), "exact"

    def answer(self, request: bytes) -> bytes:
        if request == STEP:
            return self._step(None, None, False)
        name, args = unpack(request)
        if name == "step":
            return self._step(*args)
        result = getattr(self, f"do_{name}")(*args)
        self._publish()
        return pack_answer(result)

    def close(self) -> None:
        self.engine.close()

    def _step(self, steps: int | None, episodes: int | None, infos: bool) -> bytes:
        acting, everyone = self.engine.acting, self.engine.everyone
        action = {a: part.action for a, part in self._columns.items() if everyone or acting[a].any()}
        out = self.engine.step(action, steps, episodes)
        self._publish()
        for agent, part in self._columns.items():
            part.reward[:] = out.agents[agent].reward
        marked = any(step.marked for step in out.agents.values())
        message = self._told(out) if marked else {}
        if infos:
            message["infos"] = {agent: step.infos for agent, step in out.agents.items()}
        if self._log.waiting or self.engine.exactness != self._known or self.engine.renewals:
            message |= self._news()
        kind = MARKED if marked else PLAIN
        return pack(message, kind) if message else kind

    def _told(self, out: MultiStep) -> dict[str, Any]:
        """Flags through shared memory, what is rare as a message."""
        self._stepped[:] = True if out.stepped is None else out.stepped
        final: dict[str, list[tuple[int, Tree]]] = {}
        cut: dict[str, list[int]] = {}
        first = self.first
        for agent, step in out.agents.items():
            for name, array in self._columns[agent].flags.items():
                array[:] = getattr(step, name)
            final |= {agent: [(i + first, obs) for i, obs in step.final]} if step.final else {}
            cut |= {agent: [i + first for i in step.cut]} if step.cut else {}
        for end in out.ended:
            end.env += first
        rare = {"final": final, "cut": cut, "ended": out.ended}
        return {name: part for name, part in rare.items() if part}

    def _news(self) -> dict[str, Any]:
        renewals, self._known = self.engine.renewals, self.engine.exactness
        self.engine.renewals = 0
        return {"exactness": self._known, "renewals": renewals, "log": self._log.taken()}

    def _publish(self) -> None:
        for shared, own in self._obs:
            shared[:] = own
        for agent, part in self._columns.items():
            part.acting[:] = self.engine.acting[agent]
        self._episode[:] = self.engine.episodes

    def do_reset(self) -> dict[str, Any]:
        self.engine.reset()
        return self._news()

    def do_call(self, name: str | Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return {"found": self.engine.call(name, *args, **kwargs)} | self._news()

    def do_state(self) -> dict[str, Any]:
        return self.engine.state()

    def do_restore(self, state: dict[str, Any]) -> dict[str, Any]:
        self.engine.restore(state)
        return {"renewed": np.array(self.engine.renewed)} | self._news()

    def do_begin(self, episodes: list[int], settings: list[Any]) -> dict[str, Any]:
        """Take the place of a worker that is gone: what the envs were told, then these episodes."""
        for name, args, kwargs in settings:
            self.engine.call(name, *args, **kwargs)
        self.engine.begin(episodes)
        return self._news()
