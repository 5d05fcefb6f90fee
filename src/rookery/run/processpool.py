"""ProcessPool: collectors in processes on this machine. Weights and chunks go through shared memory, only what is small through pipes."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import current_process
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any

import numpy as np

from rookery.core.chunk import Chunk
from rookery.core.sharing import Ground, Layout, Shared, layout_of
from rookery.core.tree import flatten, unflatten
from rookery.envs import preloaded
from rookery.envs.faults import FaultConfig
from rookery.envs.process import Lost, Process
from rookery.envs.worker import ANSWER, END, die_with, leave, pack, send_failure, unpack
from rookery.learning.published import Weights
from rookery.run.line import UNREADY
from rookery.run.remote import RemotePool
from rookery.run.station import Haul, Orders, Recipe, Station

LOOK = 1.0  # seconds between looks at whether a worker that does not answer still moves


class ProcessPool(RemotePool):
    """One process per collector."""

    kind = "process"

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self._layout = Layout()
        # in rounds all read the same; asynchronously each has its own, lest it be overwritten while it is read
        self._weights = [Ground() for _ in range(len(self) if self.asynchronous else 1)]

    def _line(self, recipe: Recipe) -> PipeLine:
        weights = self._weights[recipe.worker if self.asynchronous else 0]
        return PipeLine(recipe, weights, lambda: self._layout, self.interrupted)

    def _publish(self, weights: Weights, workers: Sequence[int]) -> None:
        self._layout = layout_of(weights)
        for ground in [self._weights[w] for w in workers] if self.asynchronous else self._weights:
            for key, array in ground.arrays(self._layout).items():
                array[...] = weights[key]

    def close(self) -> None:
        super().close()
        for ground in self._weights:
            ground.close()


class PipeLine:
    """One process, the pipe to it and the memory in which its chunks lie."""

    def __init__(self, recipe: Recipe, weights: Ground, layout: Callable[[], Layout], interrupted: Callable[[], Any]):
        config, self._interrupted = recipe.config, interrupted
        self._ground, self._layout, self._faults = Ground(), layout, config.env.faults
        self._beats = Shared({"beats": ((1,), np.int64)})
        self._still = config.env.faults.reset_seconds + config.env.faults.step_seconds * config.env.num
        made_of = (self._beats, self._ground, weights, recipe)
        start = config.pool.start
        self._process = Process(
            recipe.worker, (0, 1), start, self._faults, made_of, serve=serve_station, title="pool worker"
        )
        self.pid = self._process.process.pid or 0
        self._seen, self._since = -1, 0.0  # what its counter said last, and since when
        # it may have children, so it is no daemon; and nothing may keep this process from ending
        self._last = Finalize(self, kill_quietly, (self.pid,), exitpriority=10)

    def ask(self, name: str, *args: Any) -> None:
        self._process.ask(name, *args)

    def collect(self, orders: Orders) -> None:
        self._process.ask("collect", orders, self._layout())

    def ready(self, seconds: float = 0.0) -> bool:
        if self._process.pipe.poll(seconds):
            return True
        now, moves = time.monotonic(), int(self._beats.arrays["beats"][0])
        if moves != self._seen or not self._since:
            self._seen, self._since = moves, now
        elif now - self._since > self._still:
            raise Lost(f"did not move for {self._still:g} s")
        return False

    def answer(self, name: str) -> Any:
        try:
            while not self.ready(LOOK):
                if name == "start" and self._interrupted():
                    raise Lost(UNREADY)
        finally:
            self._since = 0.0
        told = unpack(self._process.answer(0.0))
        return self._unloaded(told) if isinstance(told, Haul) else told

    def _unloaded(self, haul: Haul) -> Haul:
        """The chunks, whose arrays lie in shared memory until the next orders."""
        for name, chunk in haul.chunks.items():
            haul.chunks[name] = _with_arrays(chunk, self._ground.arrays(haul.layout), f"{name}/")
        return haul

    def part(self) -> None:
        self._process.part()

    def end(self, seconds: float) -> None:
        if not self._last.still_active():
            return
        self._last.cancel()
        self._process.end(seconds)
        self._ground.close()
        self._beats.close()


def kill_quietly(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def serve_station(
    pipe: Connection,
    beats: Shared,
    ground: Ground,
    weights: Ground,
    recipe: Recipe,
    _: tuple[int, int],
    parent: int,
    __: FaultConfig,
) -> None:
    """The life of a pool worker."""
    die_with(parent)
    current_process()._config.pop("tempdir", None)  # type: ignore[attr-defined]  # a server of its own has its own folder
    os.environ.pop(preloaded.FOLDER, None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # sent to the whole group of processes: the parent decides what it means
    counter = beats.arrays["beats"]

    def beat() -> None:
        counter[0] += 1

    try:
        station = Station(recipe, beat)
    except Exception as error:  # noqa: BLE001  # whatever it is, the parent must be told
        send_failure(pipe, error)
        return
    pipe.send_bytes(pack(os.getpid(), ANSWER))
    while True:
        try:
            request = pipe.recv_bytes()
        except (EOFError, OSError):
            break
        if request == END:
            break
        try:
            pipe.send_bytes(pack(_answered(station, request, ground, weights), ANSWER))
        except Exception as error:  # noqa: BLE001  # whatever it is, the parent must be told
            send_failure(pipe, error)
    station.close()
    leave()


def _answered(station: Station, request: bytes, ground: Ground, weights: Ground) -> Any:
    name, args = unpack(request)
    if name != "collect":
        return getattr(station, f"do_{name}")(*args)
    orders, layout = args
    return _loaded(station.do_collect(orders, weights.arrays(layout)), ground)


def _loaded(haul: Haul, ground: Ground) -> Haul:
    """The same without its large arrays, which are copied into shared memory."""
    arrays: dict[str, np.ndarray] = {}
    for name, chunk in haul.chunks.items():
        arrays |= {f"{name}/rows.{key}": array for key, array in flatten(chunk.rows).items()}
        arrays |= {f"{name}/last.{key}": array for key, array in flatten({"obs": chunk.last_obs}).items()}
    haul.layout = layout_of(arrays)
    for key, shared in ground.arrays(haul.layout).items():
        shared[...] = arrays[key]
    for name, chunk in haul.chunks.items():
        haul.chunks[name] = dataclasses.replace(chunk, rows={}, last_obs=None)
    return haul


def _with_arrays(chunk: Chunk, arrays: dict[str, np.ndarray], prefix: str) -> Chunk:
    def part(kind: str) -> dict[str, Any]:
        start = f"{prefix}{kind}."
        return unflatten({key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)})

    return dataclasses.replace(chunk, rows=part("rows"), last_obs=part("last")["obs"])
