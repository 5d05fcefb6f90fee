"""AsyncWorkers: a step returns when enough envs have answered; the others answer in a later one.

    time →       step 1          step 2          step 3
    env 0        act ─ valid     act ─ valid     act ─ valid
    env 1        act ─ busy ──────────── valid   act ─ busy …          the row of a busy env is a hole

A busy env keeps the action it was given: what is decided for it meanwhile is ignored, and its observation stays what
it was. So every valid row is one complete step, and whoever records it takes what was decided when the step began
(`Collector` does). Who answers first depends on the clock: such a run cannot be repeated.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from rookery.core.tree import Tree, tree_copy_into, tree_map, tree_take
from rookery.envs.multi.env import MultiStep
from rookery.envs.workers.child import FLAGS, MARKED
from rookery.envs.workers.parent import Workers
from rookery.envs.workers.process import EnvProcess

INEXACT = "env.workers=async: which env answers first depends on the clock"


class AsyncWorkers(Workers):
    """As `Workers`, but `step` waits for `ready` envs only."""

    exactness = INEXACT

    def __init__(self, *args: Any, ready: int, **kwargs: Any):
        self._waiting: dict[Connection, EnvProcess] = {}  # at work
        self._kept: dict[int, bytes] = {}  # answers that nobody has seen yet
        super().__init__(*args, **kwargs)
        self.ready = min(ready, self.num)
        self._busy, self._stepped = np.zeros(self.num, np.bool_), np.ones(self.num, np.bool_)
        for agent, step in self.out.agents.items():  # a worker writes into its own while others are read
            step.obs = self.obs[agent] = tree_map(np.copy, step.obs)
            for name in ("reward", *FLAGS):
                setattr(step, name, getattr(step, name).copy())
            step.busy = self._busy

    def reset(self) -> None:
        self._settle()
        self._forget()
        super().reset()
        self._copy(0, self.num)

    def step(self, action: dict[str, Tree], steps: int | None = None, episodes: int | None = None) -> MultiStep:
        self._check_call(action)
        self._clear()
        lost = self._send(action, self.num if steps is None else steps)
        self._marked, self._stepped[:] = True, False
        for step in self.out.agents.values():
            step.valid[:], step.reward[:] = False, 0.0
        self._wait(min(self.ready, int(np.count_nonzero(self._busy))), lost)
        for process in self._there():
            lo, hi = process.rows
            if process.number in lost:
                self._renew(process, lost[process.number])
            elif self._fresh[lo]:
                self._dropped(process)
            elif process.number in self._kept:
                self._deliver(process, self._kept[process.number])
            else:
                continue
            self._busy[lo:hi] = self._fresh[lo:hi] = False
            self._kept.pop(process.number, None)
            self._copy(lo, hi)
        self._trim(steps, episodes)
        self._finish()
        return self.out

    def state(self) -> dict[str, Any]:
        self._settle()
        return super().state()

    def restore(self, state: dict[str, Any]) -> None:
        self._settle()
        self._forget()
        super().restore(state)
        self.exactness = INEXACT if self.exactness == "exact" else self.exactness
        self._copy(0, self.num)

    def _all(self, name: str, *args: Any) -> list[Any]:
        self._settle()
        return super()._all(name, *args)

    def _send(self, action: dict[str, Tree], most: int) -> dict[int, str]:
        """Give idle envs their actions, as many as may still be stepped; returns number → why of workers that are
        gone."""
        self._busy[self._quarantined] = False  # given up while it was at work, perhaps between two steps
        idle = [process for process in self._able() if not self._busy[process.rows[0]]]
        chosen: list[EnvProcess] = []
        for process in idle:
            rows = slice(*process.rows)
            flying = int(np.count_nonzero(self._busy))
            if flying and flying + process.size > most:  # a group too large for what is left is cut only if it must be
                continue
            for agent, actions in action.items():
                tree_copy_into(self._columns[agent].action, rows, tree_take(actions, rows))
            self._busy[rows] = True
            chosen.append(process)
        lost = self._submit(chosen, self.num)
        self._waiting |= {process.pipe: process for process in chosen if process.number not in lost}
        return lost

    def _wait(self, wanted: int, lost: dict[int, str]) -> None:
        """Until so many envs have answered or are lost."""

        def there() -> int:
            return sum(
                process.size for process in self._there() if process.number in self._kept or process.number in lost
            )

        while self._waiting and there() < wanted:
            self._gather(self._waiting, self._kept, lost)

    def _deliver(self, process: EnvProcess, answer: bytes) -> None:
        """The rows of a worker that has answered."""
        rows, marked = slice(*process.rows), answer[:1] == MARKED
        self._take(process, answer)
        self._stepped[rows] = self._shared.arrays["stepped"][rows] if marked else True
        for agent, step in self.out.agents.items():
            part = self._columns[agent]
            step.reward[rows] = part.reward[rows]
            for name, theirs in part.flags.items():
                getattr(step, name)[rows] = theirs[rows] if marked else name == "valid"

    def _copy(self, lo: int, hi: int) -> None:
        rows = slice(lo, hi)
        for agent, part in self._columns.items():
            tree_copy_into(self.obs[agent], rows, tree_take(part.obs, rows))
        self._look()

    def _look(self) -> None:
        """Nobody acts in a busy env."""
        super()._look()
        for acting in self.acting.values():
            acting &= ~self._busy
        self.everyone = self.everyone and not self._busy.any()

    def _trim(self, steps: int | None, episodes: int | None) -> None:
        """What came beyond the limits is dropped: it is no part of the run."""
        out, beyond = self.out, set()
        if steps is not None:
            beyond |= set(np.flatnonzero(self._stepped)[max(steps, 0) :].tolist())
        if episodes is not None:
            beyond |= {end.env for end in out.ended[max(episodes, 0) :]}
        if not beyond:
            return
        out.ended = [end for end in out.ended if end.env not in beyond]
        rows = sorted(beyond)
        self._stepped[rows] = False
        for step in out.agents.values():
            step.valid[rows], step.terminated[rows], step.truncated[rows], step.reward[rows] = False, False, False, 0.0
            step.final = [(i, obs) for i, obs in step.final if i not in beyond]
            step.cut += sorted(beyond - set(step.cut))

    def _settle(self) -> None:
        """Wait until nobody is at work; the answers are kept for the next step."""
        lost: dict[int, str] = {}
        while self._waiting:
            self._gather(self._waiting, self._kept, lost)
        for process in self._there():
            if process.number in lost and self._restart(process, lost[process.number]):
                self._begin(process)
                self._fresh[slice(*process.rows)] = True

    def _forget(self) -> None:
        self._kept = {}
        self._busy[:] = False
