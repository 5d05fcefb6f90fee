"""Workers: envs stepped in processes of their own, one process per group of envs, through shared memory.

Every group is an `InProcess` engine with the seeds of its envs, so the same actions give the same data as in one process, to the
bit, and the saved state is the same: a run may go on with another number of workers or with none.

A worker that dies, or does not answer within its deadline, is killed and started anew. Its envs begin their next episodes (the
seed of env i in episode e does not depend on who steps it), the unfinished ones are dropped (holes named in `Step.cut`), what the
envs were told is told again, and the run is no longer exact. Failures in a row wait longer and longer, and too many end the run.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import Any

import gymnasium
import numpy as np

from rookery.core.errors import CheckpointError, EnvError, UsageError
from rookery.core.sharing import Shared
from rookery.core.tree import Tree, flatten, tree_copy_into, unflatten
from rookery.envs.faults import FaultConfig
from rookery.envs.settings import Settings
from rookery.envs.vector import Step, VectorEnv
from rookery.envs.worker import ANSWER, FAILED, MARKED, PLAIN, STEP, Failure, Group, serve

log = logging.getLogger(__name__)
STEADY = 20  # steps after which a worker counts as sound again


class Lost(Exception):
    """A worker is dead or does not answer; the text says which."""


class Process:
    """One worker process and the pipe to it."""

    def __init__(self, number: int, rows: tuple[int, int], start: str, shared: Shared, group: Group):
        self.number, self.rows = number, rows
        self._make = (multiprocessing.get_context(start), shared, group)
        self.failures = 0  # in a row, with less than STEADY steps in between
        self.steps = 0  # since the last failure
        self.start()

    def start(self) -> None:
        context, shared, group = self._make
        self.pipe, theirs = context.Pipe()
        parent = 0 if context.get_start_method() == "forkserver" else os.getpid()
        args = (theirs, shared, group, self.rows, parent)
        self.process = context.Process(target=serve, args=args, daemon=True, name=f"rookery env worker {self.number}")
        self.process.start()
        theirs.close()

    def ask(self, name: str, *args: Any) -> None:
        self.send(pickle.dumps((name, args)))

    def send(self, request: bytes) -> None:
        try:
            self.pipe.send_bytes(request)
        except (OSError, ValueError):
            raise Lost(self.epitaph()) from None

    def answer(self, seconds: float) -> bytes:
        """What the worker says within so many seconds; its own errors are raised here, with its traceback."""
        try:
            if not self.pipe.poll(seconds):
                raise Lost(f"did not answer within {seconds:g} s")
            answer = self.pipe.recv_bytes()
        except (EOFError, OSError):
            raise Lost(self.epitaph()) from None
        if answer[:1] == FAILED:
            failure: Failure = pickle.loads(answer[1:])
            told = failure.text if failure.known else f"worker process {self.number} failed: {failure.text}"
            raise EnvError(f"{told}\nTraceback of the worker process:\n{failure.traceback}")
        return answer

    def epitaph(self) -> str:
        self.process.join(1)
        code = self.process.exitcode
        if code is None:
            return "closed its pipe"
        if code >= 0:
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name
        hint = " (often: out of memory)" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"

    def end(self, seconds: float = 0.0) -> None:
        """Gone for certain when this returns: asked first if there is time, then killed."""
        self.pipe.close()
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.process.close()


class Workers(VectorEnv):
    """`num` envs in `processes` processes. `group(lo, hi)` makes the engine of some of them, in the process that steps them."""

    def __init__(
        self,
        group: Group,
        both: tuple[gymnasium.Space, gymnasium.Space],
        num: int,
        *,
        processes: int,
        start: str = "forkserver",
        faults: FaultConfig | None = None,
        name: str = "env",
        worker: int = 0,
    ):
        super().__init__(num, *both, name)
        self.worker, self.faults, self._group = worker, faults or FaultConfig(), group
        self._shared = Shared(_layout(self._receiver.obs, self.action_spec, num))
        arrays, out = self._shared.arrays, self._out
        out.obs, self._action = _tree(arrays, "obs"), _tree(arrays, "action")
        out.reward, out.terminated, out.truncated = arrays["reward"], arrays["terminated"], arrays["truncated"]
        out.valid = arrays["valid"]
        out.valid[:] = True
        self._settings = Settings(1)  # all envs are told the same
        self._ready, self._local, self._quarantined = False, None, np.zeros(num, np.bool_)
        edges = np.linspace(0, num, min(processes, num) + 1).round().astype(int).tolist()
        pairs = list(zip(edges, edges[1:]))
        self.processes = [Process(k, rows, start, self._shared, group) for k, rows in enumerate(pairs)]
        for process in self.processes:
            self._guarded(process, None, self.faults.reset_seconds)

    @property
    def pids(self) -> list[int]:
        """Of the worker processes that are there now."""
        return [process.process.pid or 0 for process in self._there()]

    def reset(self) -> Tree:
        self._clear()
        self._ready = True
        self._all("reset")
        return self._out.obs

    def step(self, action: Tree, steps: int | None = None, episodes: int | None = None) -> Step:
        out = self._out
        if not self._ready:
            raise UsageError("step was called before reset")
        if out.marked or self._quarantined.any():
            self._clear()
        tree_copy_into(self._action, ..., action)
        count = self.num if steps is None or steps > self.num else max(steps, 0)
        if episodes is None:
            self._step_together([process for process in self._there() if process.rows[0] < count], count)
        else:
            count = self._step_in_turn(count, episodes)
        if count < self.num or self._quarantined.any():
            self._hole(count)
        return out

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        if args or kwargs:
            self._settings.note(name, args, kwargs, [0])
        found: list[Any] = []
        for answer, exactness in self._all("call", name, args, kwargs):
            found += answer
            self._note(exactness)
        return found

    def method(self, name: str) -> Any:
        """Of an env made here for the purpose: those of the workers are out of reach."""
        if self._local is None:
            self._local = self._group(0, 1)
        return self._local.method(name)

    def state(self) -> dict[str, Any]:
        if not self._ready:
            return {"exactness": self.exactness, "envs": {}}
        envs: dict[str, Any] = {}
        for process, saved in zip(self._there(), self._all("state")):
            envs |= {str(process.rows[0] + int(i)): env for i, env in saved["envs"].items()}
        return {"exactness": self.exactness, "envs": {str(i): envs[str(i)] for i in range(self.num) if str(i) in envs}}

    def restore(self, state: dict[str, Any]) -> None:
        envs = state["envs"]
        if envs and len(envs) != self.num:
            raise CheckpointError(
                f"the checkpoint holds {len(envs)} envs of {self.name}, this run has {self.num}: set env.num={len(envs)}"
            )
        self._clear()
        self.exactness = state["exactness"]
        self._ready = bool(envs)
        for process in self._there() if envs else ():
            lo, hi = process.rows
            part = {"exactness": state["exactness"], "envs": {str(i - lo): envs[str(i)] for i in range(lo, hi)}}
            process.ask("restore", part)
            told = self._answered(process, self.faults.reset_seconds * (hi - lo))
            self.renewed[lo:hi] = told["renewed"]
            self._note(told["exactness"])

    def close(self) -> None:
        for process in self._there():
            process.pipe.close()
        for process in self._there():
            process.end(5.0)
        self._shared.close()
        if self._local is not None:
            self._local.close()

    # --- stepping ---

    def _there(self) -> list[Process]:
        return [process for process in self.processes if not self._quarantined[process.rows[0]]]

    def _step_together(self, processes: list[Process], count: int) -> None:
        lost: dict[int, str] = {}
        for process in processes:
            lo, hi = process.rows
            try:
                process.send(STEP) if hi <= count else process.ask("step", count - lo, None)
            except Lost as error:
                lost[process.number] = str(error)
        waiting = {process.pipe: process for process in processes if process.number not in lost}
        answers = self._gathered(waiting, lost)
        for process in processes:
            if process.number in lost:
                self._renew(process, lost[process.number])
            else:
                self._take(process, answers[process.number])

    def _gathered(self, waiting: dict[Connection, Process], lost: dict[int, str]) -> dict[int, bytes]:
        """number of the worker → its answer; who does not answer in time goes to `lost`."""
        answers: dict[int, bytes] = {}
        largest = max((process.rows[1] - process.rows[0] for process in waiting.values()), default=1)
        limit = self.faults.step_seconds * largest + self.faults.reset_seconds
        deadline = time.monotonic() + limit
        while waiting:
            for pipe in wait_for(list(waiting), max(deadline - time.monotonic(), 0)) or list(waiting):
                process = waiting.pop(pipe)  # type: ignore[call-overload]
                try:
                    answers[process.number] = process.answer(0.0)
                except Lost as error:
                    told = str(error)
                    lost[process.number] = f"did not answer within {limit:g} s" if "answer" in told else told
        return answers

    def _step_in_turn(self, count: int, episodes: int) -> int:
        """One worker after the other, until enough episodes ended; returns the envs that were stepped."""
        for process in self._there():
            lo, hi = process.rows
            left = episodes - len(self._out.ended)
            if lo >= count or left <= 0:
                return min(count, lo)
            try:
                process.ask("step", min(hi, count) - lo, left)
                limit = self.faults.step_seconds * (hi - lo) + self.faults.reset_seconds
                self._take(process, process.answer(limit))
            except Lost as error:
                self._renew(process, str(error))
            if len(self._out.ended) >= episodes:
                done = np.flatnonzero(~self._out.valid[lo:hi])
                return lo + int(done[0]) if len(done) else hi
        return count

    def _take(self, process: Process, answer: bytes) -> None:
        process.steps += 1
        if process.steps == STEADY:
            process.failures = 0
        if answer[:1] == PLAIN:
            return
        assert answer[:1] == MARKED, answer[:1]
        told, out = pickle.loads(answer[1:]), self._out
        out.marked = True
        out.final += told["final"]
        out.ended += told["ended"]
        out.cut += told["cut"]
        self._note(told["exactness"])

    def _hole(self, start: int) -> None:
        out = self._out
        out.marked = True
        out.valid[start:] = False
        out.valid[self._quarantined] = False
        out.reward[~out.valid] = 0.0

    # --- when a worker is lost ---

    def _guarded(self, process: Process, request: tuple[str, Sequence[Any]] | None, seconds: float) -> Any:
        """Ask and wait; a worker that is lost on the way is started anew and asked again."""
        while True:
            try:
                if request is not None:
                    process.ask(request[0], *request[1])
                answer = process.answer(seconds)
                return pickle.loads(answer[1:]) if len(answer) > 1 else None
            except Lost as error:
                if not self._restart(process, str(error)):
                    return None

    def _answered(self, process: Process, seconds: float) -> Any:
        answer = process.answer(seconds)
        assert answer[:1] == ANSWER
        return pickle.loads(answer[1:])

    def _all(self, name: str, *args: Any) -> list[Any]:
        found = []
        for process in self._there():
            seconds = self.faults.reset_seconds * (process.rows[1] - process.rows[0])
            found.append(self._guarded(process, (name, args), seconds))
        return found

    def _renew(self, process: Process, why: str) -> None:
        """Its envs begin their next episodes in a new process; the row is a hole."""
        (lo, hi), out = process.rows, self._out
        while self._restart(process, why):
            episodes = (self._shared.arrays["episode"][lo:hi] + 1).tolist()
            try:
                process.ask("begin", episodes, list(self._settings.now.values()))
                self._answered(process, self.faults.reset_seconds * (hi - lo))
                break
            except Lost as error:
                why = str(error)
        out.marked = True
        out.valid[lo:hi], out.reward[lo:hi], out.terminated[lo:hi], out.truncated[lo:hi] = False, 0.0, False, False
        out.cut += range(lo, hi)

    def _restart(self, process: Process, why: str) -> bool:
        """A new process in place of a lost one; false if it has failed too often and is given up."""
        (lo, hi), process.failures, process.steps = process.rows, process.failures + 1, 0
        where = f"worker process {process.number} (pid {process.process.pid}) with envs {lo} to {hi - 1} of {self.name}"
        self._note(f"{where} {why}; its unfinished episodes were dropped")
        process.end()
        if process.failures > self.faults.renewals:
            self._quarantined[lo:hi] = True
            told = f"{where} {why}, {process.failures} times in a row (env.faults.renewals={self.faults.renewals})"
            if self._quarantined.all():
                raise EnvError(f"{told}. No env is left. `rookery check-env {self.name}` looks at one of them alone.")
            log.error("%s: it is given up, the others go on", told)
            return False
        pause = self.faults.pause(process.failures)
        log.warning("%s %s: started anew in %.1f s", where, why, pause)
        time.sleep(pause)
        process.start()
        try:
            process.answer(self.faults.reset_seconds)
        except Lost as error:
            return self._restart(process, str(error))
        return True

    def _note(self, exactness: str) -> None:
        if exactness != "exact" and self.exactness == "exact":
            self.exactness = exactness


def _layout(obs: Tree, action_spec: Tree, num: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    layout: dict[str, tuple[tuple[int, ...], Any]] = {
        f"obs.{key}": (array.shape, array.dtype) for key, array in flatten(obs).items()
    }
    layout |= {f"action.{key}": ((num, *leaf.shape), leaf.dtype) for key, leaf in flatten(action_spec).items()}
    layout |= {key: ((num,), np.bool_) for key in ("terminated", "truncated", "valid")}
    return layout | {"reward": ((num,), np.float32), "episode": ((num,), np.int64)}


def _tree(arrays: dict[str, np.ndarray], name: str) -> Tree:
    return unflatten({key.removeprefix(f"{name}."): a for key, a in arrays.items() if key.startswith(f"{name}.")})
