"""CollectorWorker: one collector with copies of the networks, in a process that is not the learner's. The same object
in every remote pool.

A worker answers requests by name, `do_collect`, `do_state` and so on. It is made from a `WorkerSpec` alone; weights,
scheduled numbers and, after a resume, the states of its random generators come with the request.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rookery.acting.actor import Message
from rookery.core import registry
from rookery.core.chunk import Collected
from rookery.core.errors import CheckpointError
from rookery.core.restoring import ADVICE
from rookery.core.rng import Streams
from rookery.core.system.shared_memory import Layout
from rookery.envs.told_calls import called
from rookery.learning.learner import Learner
from rookery.learning.published import Weights, take
from rookery.run.collect.collector import Collector
from rookery.run.config.config import Config
from rookery.run.experiment.logs import TextLog

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker is made of; travels to its process."""

    build: Callable[[WorkerSpec, Streams], tuple[dict[str, Learner], Collector]]  # what lives there
    config: Config
    worker: int
    factory: Callable[..., Any] | None = None
    imports: tuple[str, ...] = ()  # modules of users, which register names
    folder: Path | None = None  # of the run, if it has one: the worker's log is there
    by: Any = None  # function that seats players (`collect.seats`)
    renewal: int = 0  # how often this worker had to be replaced: every new one has other random streams

    @property
    def streams(self) -> Streams:
        own = Streams(self.config.run.seed)
        return own if self.renewal == 0 else Streams(own.seed_of("renewed worker", self.worker, self.renewal))


@dataclass(slots=True)
class CollectRequest:
    """One round of one worker."""

    messages: dict[str, Message]
    rows: int
    steps: int | None = None
    episodes: int | None = None
    generators: dict[str, Any] | None = None  # states to go on from; None: those it has


@dataclass(slots=True)
class CollectResult:
    """What a worker brings back."""

    chunks: Collected
    time_env: int  # nanoseconds
    time_act: int
    condition: dict[str, Any]  # exactness, renewals and envs given up, process ids of the envs
    layout: Layout = field(default_factory=dict)  # of the memory in which the chunks' arrays lie, if it is shared


class CollectorWorker:
    """One worker's collector. `beat` is called after every row: whoever watches sees that it moves."""

    def __init__(self, spec: WorkerSpec, beat: Callable[[], None] | None = None):
        registry.import_again(spec.imports)
        self._log = _log_of(spec)
        self.streams, self.worker = spec.streams, spec.worker
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)  # as the learner's process does, or bits would differ
        self.learners, self.collector = spec.build(spec, self.streams)
        self._names = generators_of(spec.config, self.worker)
        self.collector.beat = beat

    def do_collect(self, request: CollectRequest, weights: Weights) -> CollectResult:
        if request.generators is not None:
            self._set_generators(request.generators)
        take(self.learners, weights)
        for name, learner in self.learners.items():
            learner.set_knobs(request.messages[name].knobs)
        collector = self.collector
        collector.load(request.messages)
        before = collector.time_env, collector.time_act
        chunks = collector.collect(request.rows, steps=request.steps, episodes=request.episodes)
        spent = collector.time_env - before[0], collector.time_act - before[1]
        return CollectResult(chunks, *spent, self.condition())

    def condition(self) -> dict[str, Any]:
        env = self.collector.env
        return {
            "exactness": env.exactness,
            "renewals": env.renewals,
            "given_up": env.given_up,
            "pids": [os.getpid(), *env.pids],
        }

    def do_state(self) -> dict[str, Any]:
        """The collector's own state, as every pool saves it, and those of its generators."""
        return {"collector": self.collector.state(), "generators": self._generators()}

    def do_restore(self, state: dict[str, Any]) -> dict[str, Any]:
        self.collector.restore(state)
        return self.condition()

    def do_call(self, name: str | Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return list(self.collector.env.call(name, *args, **kwargs))

    def do_add(self, extend: Callable[[CollectorWorker, Config, str], None], config: Config, name: str) -> None:
        """Another player."""
        extend(self, config, name)
        self._names = generators_of(config, self.worker)

    def do_apply(self, fn: Callable[[Any], Any]) -> Any:
        return called(fn, [self.collector])[0]

    def close(self) -> None:
        self.collector.close()
        if self._log is not None:
            self._log.close()

    def _generators(self) -> dict[str, Any]:
        return {name: self.streams.numpy(name).bit_generator.state for name in self._names}

    def _set_generators(self, states: dict[str, Any]) -> None:
        for name, state in states.items():
            self.streams.numpy(name).bit_generator.state = state


def _log_of(spec: WorkerSpec) -> TextLog | None:
    """log-worker-N.txt of the run's folder, unless the worker is on a machine that does not have it."""
    if spec.folder is None or not spec.folder.is_dir():
        return None
    text = TextLog(spec.folder / f"log-worker-{spec.worker}.txt", spec.config.log.level)
    log.info("worker %d begins, process %d on %s", spec.worker, os.getpid(), socket.gethostname())
    return text


def generators_of(config: Config, worker: int) -> list[str]:
    """Names of the random streams that one worker's collector draws from."""
    drawn = any(len(weights) > 1 for weights in (config.seats or {}).values())
    return [f"seats/{worker}"] * drawn + [f"{player.prefix}act/{worker}" for player in config.players.values()]


def check_streams(config: Config, others: set[str], state: dict[str, Any]) -> None:
    """Refuse a checkpoint that lacks a generator of the workers or one of `others`: it would begin anew, unnoticed. A
    worker that was lost has left none."""
    drawn = {str(w): set(generators_of(config, w)) for w in range(config.pool.workers)}
    needed = others.union(*drawn.values()).difference(*(drawn[w] for w in drawn if state["pool"][w] is None))
    if missing := sorted(needed - {*state["streams"]["numpy"], *state["streams"]["torch"]}):
        raise CheckpointError(f"the checkpoint is whole but holds no random stream {missing[0]!r}: {ADVICE}")
