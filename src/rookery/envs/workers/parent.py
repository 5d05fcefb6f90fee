"""Workers: envs stepped in processes of their own, one process per group of envs, through shared memory.

Every group is an engine (`InProcess`, or `Agents` of envs with several) with the seeds of its envs, so the same
actions give the same data as in one process, to the bit, and the saved state is the same: a run may go on with another
number of workers or with none.

A worker that dies, or does not answer within its deadline, is killed and started anew. Its envs begin their next
episodes (the seed of env i in episode e does not depend on who steps it), the unfinished ones are dropped (holes named
in `Step.cut`), what the envs were told is told again, and the run is no longer exact. Failures in a row wait longer
and longer; a worker that fails too often is given up, and when none is left, so is the run.

Longer than 300 lines because stepping, losing and renewing a worker share the same few arrays.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import Any

import numpy as np

from rookery.core.errors import EnvError, UsageError
from rookery.core.system.child import unpack
from rookery.core.system.functions import Sent
from rookery.core.system.process import WorkerLost
from rookery.core.system.shared_memory import Shared
from rookery.core.tree import Tree, tree_copy_into
from rookery.envs.action_log import saved_envs
from rookery.envs.actions import shape_problem
from rookery.envs.engines.inprocess import InProcess
from rookery.envs.faults import SHOWN, FaultConfig
from rookery.envs.multi.engine import Agents
from rookery.envs.multi.env import MultiEnv, MultiStep
from rookery.envs.told_calls import Settings, told_in
from rookery.envs.vector import Step
from rookery.envs.workers.child import FLAGS, MARKED, PLAIN, STEP, Columns, MakeGroup, layout
from rookery.envs.workers.process import EnvProcess

log = logging.getLogger(__name__)
PARTING = 3.0  # seconds for all workers together to close their envs


class Workers(MultiEnv):
    """`num` envs in `processes` processes. `group(lo, hi)` makes the engine of some of them, in the process that steps
    them.

    `model`: an engine of such envs, which may be closed; its agents, spaces and name are theirs.
    """

    def __init__(
        self,
        group: MakeGroup,
        model: MultiEnv,
        num: int,
        *,
        processes: int,
        start: str = "auto",
        faults: FaultConfig | None = None,
        give_up: bool = True,
    ):
        super().__init__(num, model.obs_spaces, model.action_spaces, model.name)
        self.faults, self._group, self._may_give_up = faults or FaultConfig(), group, give_up
        self.waits, self.limited = model.waits, model.limited
        self._shared = Shared(layout(model, num))
        self._columns = {agent: Columns(self._shared, k) for k, agent in enumerate(self.agents)}
        self.obs = {agent: part.obs for agent, part in self._columns.items()}
        self.out = MultiStep({agent: self._rows_of(agent) for agent in self.agents})
        self._stepped, self._marked = self._shared.arrays["stepped"], True  # marked: flags are to be cleared
        self._told: dict[str, tuple[str, Sequence[Any], dict[str, Any]]] = {}  # method → its last call, for all envs
        self._ready = False
        self._local: InProcess | Agents | None = None
        self._shown = False  # the code in which an env raised
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

    def _rows_of(self, agent: str) -> Step:
        part = self._columns[agent]
        terminated, truncated, valid = (part.flags[name] for name in FLAGS)
        return Step(part.obs, part.reward, terminated, truncated, valid, infos=[{} for _ in range(self.num)])

    @property
    def pids(self) -> tuple[int, ...]:  # type: ignore[override]
        """Of the worker processes that are there now."""
        return tuple(process.pid for process in self._there())

    @property
    def given_up(self) -> int:  # type: ignore[override]
        return int(np.count_nonzero(self._quarantined))

    def reset(self) -> None:
        self._clear()
        for answer in self._all("reset"):
            self._note(answer)
        self._ready = True
        self._fresh[:] = False
        self._look()

    def step(self, action: dict[str, Tree], steps: int | None = None, episodes: int | None = None) -> MultiStep:
        self._check_call(action)
        if self._marked or self._quarantined.any():
            self._clear()
        for agent, rows in action.items():
            tree_copy_into(self._columns[agent].action, ..., rows)
        count = self.num if steps is None or steps > self.num else max(steps, 0)
        if episodes is None:
            self._step_together([process for process in self._able() if process.rows[0] < count], count)
        else:
            count = self._step_in_turn(count, episodes)
        if count < self.num or self._quarantined.any() or self._fresh.any():
            self._hole(count)
        self._finish()
        return self.out

    def summary(self, out: MultiStep) -> Step:
        return super().summary(out) if self.waits else next(iter(out.agents.values()))

    def _clear(self) -> None:
        """Undo the marks of the last step: they may be rare, so they are not written anew in each."""
        self._marked, self._stepped[:] = False, True
        self.out.ended, self.out.stepped = [], None
        for step in self.out.agents.values():
            step.clear()

    def _finish(self) -> None:
        """What follows from the marks of all workers together."""
        if self._marked:
            self.out.stepped = None if self._stepped.all() else self._stepped
            for step in self.out.agents.values():
                step.marked = bool(step.final or step.cut) or not step.valid.all()
                step.ended = [] if self.waits else self.out.ended  # of an only agent that acts in every step
        self._look()

    def _look(self) -> None:
        """Who must act next. Not before the next step does a worker that is renewed between two of them change it."""
        for agent, part in self._columns.items():
            self.acting[agent][:] = part.acting
        self.everyone = all(bool(acting.all()) for acting in self.acting.values())

    def _check_call(self, action: dict[str, Tree]) -> None:
        """Whatever numpy can broadcast would otherwise reach the shared memory."""
        if not self._ready:
            raise UsageError("step was called before reset")
        if self.waits:
            self._check(action)
        for agent, rows in action.items():
            if problem := shape_problem(rows, self.action_spec[agent], self.num):
                raise UsageError(f"step of {self.name} got actions of {problem} ({self.num} envs)")

    def call(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        values: list[Any] = []
        for answer in self._all("call", name if isinstance(name, str) else Sent(name), args, kwargs):
            self._note(answer)
            values += answer["found"]
        if isinstance(name, str) and (args or kwargs):  # not before: what failed is told to nobody again
            self._told[name] = (name, args, kwargs)
        return values

    def method(self, name: str) -> Any:
        """Of an env made here for the purpose: those of the workers are out of reach."""
        if self._local is None:
            self._local = self._group(0, 1)
        return self._local.method(name)

    def state(self) -> dict[str, Any]:
        if not self._ready:
            return {"exactness": self.exactness, "envs": {}}
        saved = {process.number: part for process, part in zip(self._there(), self._all("state"))}
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
            answer = self._guarded(process, ("restore", (part,)), self.faults.reset_seconds * (hi - lo))
            if answer is not None:
                self.renewed[lo:hi] = answer["renewed"]
                self._note(answer)
        self._look()

    def close(self) -> None:
        there, end = self._there(), time.monotonic() + PARTING
        for process in there:
            process.part()
        late = [process.number for process in there if not process.end(max(end - time.monotonic(), 0.0))]
        if late:
            log.warning("%s: worker processes %s did not close their envs within %g s", self.name, late, PARTING)
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
            left = episodes - len(self.out.ended)
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
            if len(self.out.ended) >= episodes:
                return lo + int(np.flatnonzero(self._stepped[lo:hi])[-1]) + 1  # before it may be dropped episodes
        return count

    def _take(self, process: EnvProcess, answer: bytes) -> None:
        process.steps += 1
        if answer == PLAIN:
            return
        message, steps = unpack(answer) if len(answer) > 1 else {}, self.out.agents
        self._marked = self._marked or answer[:1] == MARKED
        for agent, infos in message.get("infos", {}).items():
            steps[agent].infos[slice(*process.rows)] = infos  # type: ignore[index]  # they are there from the start
        for agent, final in message.get("final", {}).items():
            steps[agent].final += final
        for agent, cut in message.get("cut", {}).items():
            steps[agent].cut += cut
        self.out.ended += message.get("ended", ())
        self._note(message)

    def _hole(self, start: int) -> None:
        self._marked, self._stepped[start:], self._stepped[self._quarantined] = True, False, False
        for step in self.out.agents.values():
            step.valid[start:], step.valid[self._quarantined] = False, False
        for process in self.processes:
            lo, hi = process.rows
            if self._fresh[lo] and lo < start:
                self._dropped(process)
                self._fresh[lo:hi] = False
        for step in self.out.agents.values():
            step.reward[~step.valid] = 0.0

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
        answers = []
        for process in self._there():
            answer = self._guarded(process, (name, args), self.faults.reset_seconds * process.size)
            answers += [] if answer is None else [answer]
        return answers

    def _renew(self, process: EnvProcess, why: str) -> None:
        """Its envs begin their next episodes in a new process; the row is a hole."""
        if self._restart(process, why):
            self._begin(process)
        self._dropped(process)

    def _dropped(self, process: EnvProcess) -> None:
        """The rows of its envs are holes, after which their episodes do not go on."""
        rows, self._marked = slice(*process.rows), True
        self._stepped[rows] = False
        for step in self.out.agents.values():
            step.valid[rows], step.reward[rows], step.terminated[rows], step.truncated[rows] = False, 0.0, False, False
            step.cut += range(*process.rows)

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
            often = f"{process.patience.failures} times in a row (env.faults.renewals={self.faults.renewals})"
            problem = f"{where} {why}, {often}"
            if self._quarantined.all() or not self._may_give_up:
                raise EnvError(
                    f"{problem}. No env is left. `rookery check-env {self.name}` looks at one of them alone."
                )
            log.error("%s: it is given up, the others go on", problem)
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

    def _note(self, news: dict[str, Any]) -> None:
        self.renewals += news.get("renewals", 0)
        for level, text in news.get("log", ()):
            sentence, _, code = text.partition(SHOWN)
            log.log(level, "%s", sentence if self._shown else text)  # every worker shows it, once
            self._shown = self._shown or bool(code)
        if self.exactness == "exact":
            self.exactness = news.get("exactness", "exact")
