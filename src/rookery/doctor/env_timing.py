"""The envs of one collector, stepped by themselves in this process:
how long a row takes, and how much of that is computing.

    wall = computing + sleep + waiting for a CPU that others have

Computing is the CPU time of this process, waiting is what the kernel counts as such (/proc/self/schedstat), sleep is
the rest: an env that waits for a network, a clock or another process. Sleep can be shared by any number of processes,
computing by as many as there are CPUs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from rookery.acting.actor import Message
from rookery.core.rng import Streams
from rookery.core.system.portable import kernel_text
from rookery.envs.engines.native import Native
from rookery.run import build
from rookery.run.machine import one_thread
from rookery.run.trainer import Trainer

ROWS = 2_000  # looked at, at most


@dataclass(frozen=True, slots=True)
class Row:
    """One step of all envs of a collector."""

    nanoseconds: float
    computing: float  # share in which a CPU works, from 0 to 1
    native: bool = False  # whether our own engine steps them


class Watch:
    """A function whose calls are timed: by the clock of the wall and by that of this process."""

    def __init__(self, call: Callable[..., Any]):
        self._call, self.wall, self.computing, self.calls = call, 0, 0, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        wall, computing = time.perf_counter_ns(), time.process_time_ns()
        try:
            return self._call(*args, **kwargs)
        finally:
            self.computing += time.process_time_ns() - computing
            self.wall += time.perf_counter_ns() - wall
            self.calls += 1

    def row(self, waited: float) -> Row:
        """`waited`: share of computing time that was spent waiting for a CPU besides."""
        calls = max(self.calls, 1)
        computing = min(self.computing * (1 + waited), self.wall)
        sleep = self.wall - computing
        return Row(self.wall / calls, self.computing / max(self.computing + sleep, 1))


def step_alone(trainer: Trainer, env: Any, seconds: float) -> Row:
    """Envs as those of one collector of the trainer, whatever pool and env.workers say,
    stepped with its present policy.
    """
    with closing(_collector(trainer, env)) as collector, one_thread():
        knobs = {name: Message(player.learner.updates, player.knob_values) for name, player in trainer.players.items()}
        collector.load(knobs)
        collector.collect(rows=1)  # makes buffers, and compiles a numba engine
        watch = Watch(collector.env.step)
        collector.env.step = watch
        until, used, waited = time.monotonic() + seconds, time.process_time_ns(), _waited()
        while watch.calls < ROWS and (watch.calls == 0 or time.monotonic() < until):
            collector.collect(rows=1)
        used, waited = time.process_time_ns() - used, _waited() - waited
    return replace(watch.row(waited / max(used, 1)), native=isinstance(getattr(collector.env, "vector", None), Native))


def _collector(trainer: Trainer, env: Any) -> Any:
    config, streams = trainer.config, Streams(trainer.config.run.seed)
    table = build.make_env(config, streams, config.env.num, "train", factory=env, here=True)
    return build.build_collector(trainer.players, table, build.seating(config, table), 0, streams)


def _waited() -> int:
    """Nanoseconds that the main thread has waited for a CPU; 0 where the kernel does not say."""
    try:
        return int(kernel_text("/proc/self/schedstat").split()[1])
    except (IndexError, ValueError):
        return 0
