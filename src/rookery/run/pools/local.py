"""Pools: the only code that knows where collectors live. `submit` hands out work, `gather` brings the chunks back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from rookery.acting.actor import Message
from rookery.core.chunk import Collected
from rookery.envs.multi.env import MultiEnv
from rookery.envs.told_calls import Call, called, told_in
from rookery.run.collect.collector import Collector
from rookery.run.machine import one_thread


class LocalPool:
    """All collectors in this process, one after the other; the actors share the learner's live weights."""

    kind = "local"
    waiting = 0  # chunks that came while others were learnt from
    interrupted: Callable[[], Any] = lambda: None  # as of a RemotePool; here nobody is waited for

    def __init__(self, collectors: Sequence[Collector]):
        self.collectors = list(collectors)
        self._done: list[tuple[int, Collected]] = []
        self._reason = "exact"  # or what happened to a worker of the pool in which the run began

    def submit(
        self, messages: dict[str, Message], rows: int, *, steps: int | None = None, episodes: int | None = None
    ) -> None:
        """Every collector: take over the messages, collect `rows` rows. `steps` and `episodes` are what the run still
        needs."""
        with one_thread():
            for collector in self.collectors:
                collector.load(messages)
                chunks = collector.collect(rows, steps=steps, episodes=episodes)
                self._done.append((collector.index, chunks))
                if steps is not None or episodes is not None:
                    steps = None if steps is None else steps - chunks.steps
                    episodes = None if episodes is None else episodes - len(chunks.episodes)

    def gather(self, wait: bool = True) -> list[tuple[int, Collected]]:
        """(collector, chunk per player), ordered by collector."""
        done, self._done = self._done, []
        return done

    @property
    def known_env(self) -> MultiEnv:
        """One that can be asked for its methods."""
        return self.collectors[0].env

    def foreach_worker(self, fn: Callable[[Any], Any]) -> list[Any]:
        return called(fn, self.collectors)

    def foreach_env(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method on every env of every worker, or a function with every env."""
        return [out for collector in self.collectors for out in collector.env.call(name, *args, **kwargs)]

    def times(self) -> tuple[int, int]:
        """Nanoseconds spent in envs and in acting so far."""
        return sum(c.time_env for c in self.collectors), sum(c.time_act for c in self.collectors)

    @property
    def exactness(self) -> str:
        """`exact`, or the first reason why a resumed run is only approximate."""
        reasons = [self._reason, *(c.env.exactness for c in self.collectors)]
        return next((reason for reason in reasons if reason != "exact"), "exact")

    def metrics(self) -> dict[str, float]:
        """Envs that were replaced and given up so far; nothing if there were none."""
        counts = {
            "env/renewals": sum(c.env.renewals for c in self.collectors),
            "env/given_up": sum(c.env.given_up for c in self.collectors),
        }
        return {name: float(count) for name, count in counts.items() if count}

    def pids(self) -> list[list[int]]:
        """Per worker its process, which is this one, then those of its envs."""
        return [[os.getpid(), *c.env.pids] for c in self.collectors]

    def state(self) -> dict[str, Any]:
        return {str(c.index): c.state() for c in self.collectors} | reason_of(self._reason)

    def restore(self, state: dict[str, Any]) -> None:
        self._done = []  # what was collected before a divergence is not the restored run's
        self._reason = state.get("reason", "exact")
        for collector in self.collectors:
            if (saved := state[str(collector.index)]) is not None:
                collector.restore(saved)
                continue
            for name, args, kwargs in told_before(state).values():  # a worker of another pool that was lost
                collector.env.call(name, *args, **kwargs)

    def close(self) -> None:
        for collector in self.collectors:
            collector.close()


def reason_of(exactness: str) -> dict[str, Any]:
    """As it is saved: nothing while the run is exact."""
    return {} if exactness == "exact" else {"reason": exactness}


def told_before(state: dict[str, Any]) -> dict[str, Call]:
    """Method → its last call, from the saved state of a pool; `told` is there if a worker was lost, perhaps all."""
    calls: dict[str, Call] = {name: (name, args, kwargs) for name, args, kwargs in state.get("told", ())}
    for key, saved in state.items():
        if key.isdigit() and saved is not None and not calls:
            calls = told_in(saved["env"])
    return calls
