"""ProcessPool: collectors in processes on this machine. Weights and chunks go through shared memory, only what is
small through pipes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from rookery.core.chunk import Chunk
from rookery.core.system.child import ANSWER, live, pack, pack_answer, unpack
from rookery.core.system.forkserver import forget_server
from rookery.core.system.process import STARTING, Process, WorkerLost
from rookery.core.system.shared_memory import Layout, Shared, SharedArena, layout_of
from rookery.core.tree import flatten, unflatten
from rookery.learning.published import Weights
from rookery.run.pools.protocol import UNREADY
from rookery.run.pools.remote import RemotePool
from rookery.run.pools.worker import CollectorWorker, CollectRequest, CollectResult, WorkerSpec

LOOK = 1.0  # seconds between looks at whether a worker that does not answer still moves


class ProcessPool(RemotePool):
    """One process per collector."""

    kind = "process"

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self._layout = Layout()
        # in rounds all read the same; asynchronously each has its own, lest it be overwritten while it is read
        self._weights = [SharedArena() for _ in range(len(self) if self.asynchronous else 1)]

    def _link(self, spec: WorkerSpec) -> PipeLink:
        weights = self._weights[spec.worker if self.asynchronous else 0]
        return PipeLink(spec, weights, lambda: self._layout, self.interrupted)

    def _publish(self, weights: Weights, workers: Sequence[int]) -> None:
        self._layout = layout_of(weights)
        for arena in [self._weights[w] for w in workers] if self.asynchronous else self._weights:
            for key, array in arena.arrays(self._layout).items():
                array[...] = weights[key]

    def close(self) -> None:
        super().close()
        for arena in self._weights:
            arena.close()


class PoolProcess(Process):
    """May have children: envs in processes of their own."""

    title, option = "pool worker", "pool.start"
    preload = ("rookery.envs.builders.groups",)


class PipeLink:
    """One process, the pipe to it and the memory in which its chunks lie."""

    def __init__(
        self, spec: WorkerSpec, weights: SharedArena, layout: Callable[[], Layout], interrupted: Callable[[], Any]
    ):
        config, self._interrupted = spec.config, interrupted
        self._arena, self._layout = SharedArena(), layout
        self._beats = Shared({"beats": ((1,), np.int64)})
        self._still = config.env.faults.reset_seconds + config.env.faults.step_seconds * config.env.num
        made_of = (self._beats, self._arena, weights, spec)
        self._process = PoolProcess(spec.worker, config.pool.start, serve_worker, made_of)
        self.pid, self._over = self._process.pid, False
        self._seen, self._since = -1, 0.0  # what its counter said last, and since when

    def ask(self, name: str, *args: Any) -> None:
        self._process.ask(name, *args)

    def collect(self, request: CollectRequest) -> None:
        self._process.ask("collect", request, self._layout())

    @property
    def _patience(self) -> float:
        """Seconds without a sign of life: as long as its envs may take, but a process that has not answered yet
        imports torch first."""
        return self._still if self._process.answered else self._still + STARTING

    def ready(self, seconds: float = 0.0) -> bool:
        if self._process.pipe.poll(seconds):
            return True
        now, moves = time.monotonic(), int(self._beats.arrays["beats"][0])
        if moves != self._seen or not self._since:
            self._seen, self._since = moves, now
        elif now - self._since > self._patience:
            raise WorkerLost(f"did not move for {self._patience:g} s")
        return False

    def answer(self, name: str) -> Any:
        try:
            while not self.ready(LOOK):
                if name == "start" and self._interrupted():
                    raise WorkerLost(UNREADY)
        finally:
            self._since = 0.0
        answer = unpack(self._process.answer(0.0))
        return self._unloaded(answer) if isinstance(answer, CollectResult) else answer

    def _unloaded(self, result: CollectResult) -> CollectResult:
        """The chunks, whose arrays lie in shared memory until the next request."""
        for name, chunk in result.chunks.items():
            result.chunks[name] = _with_arrays(chunk, self._arena.arrays(result.layout), f"{name}/")
        return result

    def part(self) -> None:
        self._process.part()

    def end(self, seconds: float) -> None:
        if self._over:
            return
        self._over = True
        self._process.end(seconds)
        self._arena.close()
        self._beats.close()


def serve_worker(
    pipe: Connection, parent: int, beats: Shared, arena: SharedArena, weights: SharedArena, spec: WorkerSpec
) -> None:
    """The life of a pool worker."""
    forget_server()
    live(pipe, parent, lambda: WorkerServer(beats, arena, weights, spec))


class WorkerServer:
    """A worker and the memory that it shares with the pool."""

    endures = True

    def __init__(self, beats: Shared, arena: SharedArena, weights: SharedArena, spec: WorkerSpec):
        self._counter, self._arena, self._weights = beats.arrays["beats"], arena, weights
        self._worker = CollectorWorker(spec, self._beat)
        self.close = self._worker.close

    def _beat(self) -> None:
        self._counter[0] += 1

    def answer(self, packed: bytes) -> bytes:
        name, args = unpack(packed)
        if name != "collect":
            return pack_answer(getattr(self._worker, f"do_{name}")(*args))
        request, layout = args
        result = self._worker.do_collect(request, self._weights.arrays(layout))
        return pack(_loaded(result, self._arena), ANSWER)


def _loaded(result: CollectResult, arena: SharedArena) -> CollectResult:
    """The same without its large arrays, which are copied into shared memory."""
    arrays: dict[str, np.ndarray] = {}
    for name, chunk in result.chunks.items():
        arrays |= {f"{name}/rows.{key}": array for key, array in flatten(chunk.rows).items()}
        arrays |= {f"{name}/last.{key}": array for key, array in flatten({"obs": chunk.last_obs}).items()}
    result.layout = layout_of(arrays)
    for key, shared in arena.arrays(result.layout).items():
        shared[...] = arrays[key]
    for name, chunk in result.chunks.items():
        result.chunks[name] = dataclasses.replace(chunk, rows={}, last_obs=None)
    return result


def _with_arrays(chunk: Chunk, arrays: dict[str, np.ndarray], prefix: str) -> Chunk:
    def part(kind: str) -> dict[str, Any]:
        start = f"{prefix}{kind}."
        return unflatten({key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)})

    return dataclasses.replace(chunk, rows=part("rows"), last_obs=part("last")["obs"])
