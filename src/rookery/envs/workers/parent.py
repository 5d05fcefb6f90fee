"""Workers: envs stepped in processes of their own, one process per group of envs, through shared memory.

Every group is an `InProcess` engine with the seeds of its envs, so the same actions give the same data as in one process, to the
bit, and the saved state is the same: a run may go on with another number of workers or with none.

A worker that dies, or does not answer within its deadline, is killed and started anew. Its envs begin their next episodes (the
seed of env i in episode e does not depend on who steps it), the unfinished ones are dropped (holes named in `Step.cut`), what the
envs were told is told again, and the run is no longer exact. Failures in a row wait longer and longer; a worker that fails too
often is given up, and when none is left, so is the run.

Longer than 300 lines because stepping, losing and renewing a worker share the same few arrays.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import Any

import gymnasium
import numpy as np

from rookery.core.errors import EnvError, UsageError
from rookery.core.system.child import unpack
from rookery.core.system.process import WorkerLost
from rookery.core.system.shared_memory import Shared
from rookery.core.tree import Tree, flatten, tree_copy_into, unflatten
from rookery.envs.action_log import saved_envs
from rookery.envs.actions import shape_problem
from rookery.envs.faults import FaultConfig
from rookery.envs.told_calls import Settings, told_in
from rookery.envs.vector import Step, VectorEnv
from rookery.envs.workers.child import MARKED, PLAIN, STEP, MakeGroup
from rookery.envs.workers.process import EnvProcess

log = logging.getLogger(__name__)
PARTING = 3.0  # seconds for all workers together to close their envs


class Workers(VectorEnv):
    """`num` envs in `processes` processes. `group(lo, hi)` makes the engine of some of them, in the process that steps them."""

    def __init__(
        self,
        group: MakeGroup,
        both: tuple[gymnasium.Space, gymnasium.Space],
        num: int,
        *,
        processes: int,
        start: str = "forkserver",
        faults: FaultConfig | None = None,
        name: str = "env",
        give_up: bool = True,
    ):
        super().__init__(num, *both, name)
        self.faults, self._group, self._may_give_up = faults or FaultConfig(), group, give_up
        self._shared = Shared(_layout(self._receiver.obs, self.action_spec, num))
        arrays, out = self._shared.arrays, self._out
        out.obs, self._action = _tree(arrays, "obs"), _tree(arrays, "action")
        out.reward, out.terminated, out.truncated = arrays["reward"], arrays["terminated"], arrays["truncated"]
        out.valid = arrays["valid"]
        out.valid[:] = True
        self._told: dict[str, tuple[str, Sequence[Any], dict[str, Any]]] = {}  # method → its last call, for all envs
        self._ready = False
        self._local: VectorEnv | None = None
        self._quarantined = np.zeros(num, np.bool_)
        self._fresh = np.zeros(num, np.bool_)  # renewed between two steps: the next row is a hole
        edges = np.linspace(0, num, min(processes, num) + 1).round().astype(int).tolist()
        self.processes: list[EnvProcess] = []
        with ExitStack() as unfinished:
            unfinished.callback(self.close)
            for k, rows in enumerate(itertools.pairwise(edges)):
                self.processes.append(EnvProcess(k, rows, start, self.faults, (self._shared, group)))
            for process in self.processes:
                self._guarded(process, None, self.faults.reset_seconds)
            unfinished.pop_all()

    @property
    def pids(self) -> tuple[int, ...]:  # type: ignore[override]
        """Of the worker processes that are there now."""
        return tuple(process.pid for process in self._there())

    @property
    def given_up(self) -> int:  # type: ignore[override]
        return int(np.count_nonzero(self._quarantined))

    def reset(self) -> Tree:
        self._clear()
        for told in self._all("reset"):
            self._note(told)
        self._ready = True
        self._fresh[:] = False
        return self._out.obs

    def step(self, action: Tree, steps: int | None = None, episodes: int | None = None) -> Step:
        out = self._out
        self._check_call(action)
        if out.marked or self._quarantined.any():
            self._clear()
        tree_copy_into(self._action, ..., action)
        count = self.num if steps is None or steps > self.num else max(steps, 0)
        if episodes is None:
            self._step_together([process for process in self._able() if process.rows[0] < count], count)
        else:
            count = self._step_in_turn(count, episodes)
        if count < self.num or self._quarantined.any() or self._fresh.any():
            self._hole(count)
        return out

    def _check_call(self, action: Tree) -> None:
        """Whatever numpy can broadcast would otherwise reach the shared memory."""
        if not self._ready:
            raise UsageError("step was called before reset")
        if problem := shape_problem(action, self.action_spec, self.num):
            raise UsageError(f"step of {self.name} got actions of {problem} ({self.num} envs)")

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        if args or kwargs:
            self._told[name] = (name, args, kwargs)
        found: list[Any] = []
        for told in self._all("call", name, args, kwargs):
            self._note(told)
            found += told["found"]
        return found

    def method(self, name: str) -> Any:
        """Of an env made here for the purpose: those of the workers are out of reach."""
        if self._local is None:
            self._local = self._group(0, 1)
        return self._local.method(name)

    def state(self) -> dict[str, Any]:
        if not self._ready:
            return {"exactness": self.exactness, "envs": {}}
        saved = {process.number: told for process, told in zip(self._there(), self._all("state"))}
        episode, envs, settings = self._shared.arrays["episode"], {}, Settings(1)
        for call in self._told.values():
            settings.note(*call, [0])
        settings.begin(0)
        for process in self.processes:
            for i in range(*process.rows):  # of a worker that was given up, the next episode: a resumed run tries again
                lost = {
                    "episode": int(episode[i]),
                    "seed": None,
                    "length": 0,
                    "total": 0.0,
                    "settings": settings.state(0),
                }
                envs[str(i)] = saved.get(process.number, {"envs": {}})["envs"].get(str(i - process.rows[0]), lost)
        return {"exactness": self.exactness, "envs": envs}

    def restore(self, state: dict[str, Any]) -> None:
        envs = saved_envs(state, self.num, self.name)
        self._clear()
        self.exactness, self._ready = state["exactness"], bool(envs)
        self._fresh[:] = False
        if envs:
            self._told = dict(told_in(state))
        for process in self._there() if envs else ():
            lo, hi = process.rows
            part = {"exactness": state["exactness"], "envs": {str(i - lo): envs[str(i)] for i in range(lo, hi)}}
            told = self._guarded(process, ("restore", (part,)), self.faults.reset_seconds * (hi - lo))
            if told is not None:
                self.renewed[lo:hi] = told["renewed"]
                self._note(told)

    def close(self) -> None:
        there, end = self._there(), time.monotonic() + PARTING
        for process in there:
            process.part()
        for process in there:
            process.end(max(end - time.monotonic(), 0.0))
        self.processes = []
        self._shared.close()
        if self._local is not None:
            self._local.close()
            self._local = None

    # --- stepping ---

    def _there(self) -> list[EnvProcess]:
        return [process for process in self.processes if not self._quarantined[process.rows[0]]]

    def _able(self) -> list[EnvProcess]:
        """Those whose envs are where the caller believes."""
        return [process for process in self._there() if not self._fresh[process.rows[0]]]

    def _limit(self, process: EnvProcess) -> float:
        """Seconds for a step of a group; its own watchdog is stricter, unless nothing moves there any more."""
        return self.faults.step_seconds * process.size + self.faults.reset_seconds

    def _step_together(self, processes: list[EnvProcess], count: int) -> None:
        lost = self._submit(processes, count)
        waiting = {process.pipe: process for process in processes if process.number not in lost}
        answers: dict[int, bytes] = {}
        while waiting:
            self._gather(waiting, answers, lost)
        for process in processes:
            if process.number in lost:
                self._renew(process, lost[process.number])
            else:
                self._take(process, answers[process.number])

    def _submit(self, processes: list[EnvProcess], count: int) -> dict[int, str]:
        """Ask for a step of the first `count` envs; returns number → why of workers that are gone."""
        lost: dict[int, str] = {}
        for process in processes:
            lo, hi = process.rows
            process.due = time.monotonic() + self._limit(process)
            try:
                plain = hi <= count and not self.wants_infos
                process.send(STEP) if plain else process.ask("step", min(hi, count) - lo, None, self.wants_infos)
            except WorkerLost as error:
                lost[process.number] = str(error)
        return lost

    def _gather(self, waiting: dict[Connection, EnvProcess], answers: dict[int, bytes], lost: dict[int, str]) -> None:
        """Wait for somebody; whoever answers, is gone or is overdue is taken out of `waiting`."""
        soonest = min(process.due for process in waiting.values())
        there = wait_for(list(waiting), max(soonest - time.monotonic(), 0.0))
        for pipe in there or [pipe for pipe, process in waiting.items() if process.due <= soonest]:
            process = waiting.pop(pipe)  # type: ignore[call-overload]
            try:
                if not there:
                    raise WorkerLost(f"did not answer within {self._limit(process):g} s")
                answers[process.number] = process.answer(0.0)
            except WorkerLost as error:
                lost[process.number] = str(error)

    def _step_in_turn(self, count: int, episodes: int) -> int:
        """One worker after the other, until enough episodes ended; returns the envs that were stepped."""
        for process in self._there():
            lo, hi = process.rows
            left = episodes - len(self._out.ended)
            if lo >= count or left <= 0:
                return min(count, lo)
            if self._fresh[lo]:
                continue
            try:
                process.ask("step", min(hi, count) - lo, left, self.wants_infos)
                self._take(process, process.answer(self._limit(process)))
            except WorkerLost as error:
                self._renew(process, str(error))
                continue
            if len(self._out.ended) >= episodes:
                done = np.flatnonzero(~self._out.valid[lo:hi])
                return lo + int(done[0]) if len(done) else hi
        return count

    def _take(self, process: EnvProcess, answer: bytes) -> None:
        process.steps += 1
        if answer == PLAIN:
            return
        told, out = unpack(answer), self._out
        if self.wants_infos:
            self._infos[slice(*process.rows)] = told["infos"]
        if answer[:1] == PLAIN:
            return
        assert answer[:1] == MARKED, answer[:1]
        out.marked = True
        out.final += told["final"]
        out.ended += told["ended"]
        out.cut += told["cut"]
        self._note(told)

    def _hole(self, start: int) -> None:
        out = self._out
        out.marked = True
        out.valid[start:] = False
        out.valid[self._quarantined] = False
        for process in self.processes:
            lo, hi = process.rows
            if self._fresh[lo] and lo < start:
                self._dropped(process)
                self._fresh[lo:hi] = False
        out.reward[~out.valid] = 0.0

    # --- when a worker is lost ---

    def _guarded(self, process: EnvProcess, request: tuple[str, Sequence[Any]] | None, seconds: float) -> Any:
        """Ask and wait; a worker that is lost on the way is started anew and asked again. None: it was given up."""
        while True:
            try:
                if request is not None:
                    process.ask(request[0], *request[1])
                return unpack(process.answer(seconds))
            except WorkerLost as error:
                if not self._restart(process, str(error)):
                    return None
            if self._ready and request is not None and request[0] not in ("reset", "restore"):
                self._begin(process)
                self._fresh[slice(*process.rows)] = True

    def _all(self, name: str, *args: Any) -> list[Any]:
        found = []
        for process in self._there():
            told = self._guarded(process, (name, args), self.faults.reset_seconds * process.size)
            found += [] if told is None else [told]
        return found

    def _renew(self, process: EnvProcess, why: str) -> None:
        """Its envs begin their next episodes in a new process; the row is a hole."""
        if self._restart(process, why):
            self._begin(process)
        self._dropped(process)

    def _dropped(self, process: EnvProcess) -> None:
        (lo, hi), out = process.rows, self._out
        out.marked = True
        out.valid[lo:hi], out.reward[lo:hi], out.terminated[lo:hi], out.truncated[lo:hi] = False, 0.0, False, False
        out.cut += range(lo, hi)

    def _begin(self, process: EnvProcess) -> None:
        """The next episodes of a new worker, or of the one after it …"""
        lo, hi = process.rows
        while True:
            episodes = (self._shared.arrays["episode"][lo:hi] + 1).tolist()
            try:
                process.ask("begin", episodes, list(self._told.values()))
                self._note(unpack(process.answer(self.faults.reset_seconds * (hi - lo))))
                return
            except WorkerLost as error:
                self._shared.arrays["episode"][lo:hi] += 1  # not the same again: its seed may be the cause
                if not self._restart(process, str(error)):
                    return

    def _restart(self, process: EnvProcess, why: str) -> bool:
        """A new process in place of a lost one; false if it has failed too often and is given up."""
        (lo, hi), borne = process.rows, process.patience.bears(process.steps)
        process.steps = 0
        where = f"worker process {process.number} (pid {process.pid}) with envs {lo} to {hi - 1} of {self.name}"
        self._note({"exactness": f"{where} {why.partition(chr(10))[0]}; its unfinished episodes were dropped"})
        process.end()
        if not borne:
            self._quarantined[lo:hi] = True
            told = f"{where} {why}, {process.patience.failures} times in a row (env.faults.renewals={self.faults.renewals})"
            if self._quarantined.all() or not self._may_give_up:
                raise EnvError(f"{told}. No env is left. `rookery check-env {self.name}` looks at one of them alone.")
            log.error("%s: it is given up, the others go on", told)
            return False
        pause = process.patience.pause
        log.warning("%s %s: started anew in %.1f s", where, why, pause)
        time.sleep(pause)
        self.renewals += hi - lo
        process.start()
        try:
            process.answer(self.faults.reset_seconds)
        except WorkerLost as error:
            return self._restart(process, str(error))
        return True

    def _note(self, told: dict[str, Any]) -> None:
        self.renewals += told.get("renewals", 0)
        for level, text in told.get("log", ()):
            log.log(level, "%s", text)
        if told["exactness"] != "exact" and self.exactness == "exact":
            self.exactness = told["exactness"]


def _layout(obs: Tree, action_spec: Tree, num: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    layout: dict[str, tuple[tuple[int, ...], Any]] = {
        f"obs.{key}": (array.shape, array.dtype) for key, array in flatten(obs).items()
    }
    layout |= {f"action.{key}": ((num, *leaf.shape), leaf.dtype) for key, leaf in flatten(action_spec).items()}
    layout |= dict.fromkeys(("terminated", "truncated", "valid"), ((num,), np.bool_))
    return layout | {"reward": ((num,), np.float32), "episode": ((num,), np.int64)}


def _tree(arrays: dict[str, np.ndarray], name: str) -> Tree:
    return unflatten({key.removeprefix(f"{name}."): a for key, a in arrays.items() if key.startswith(f"{name}.")})
