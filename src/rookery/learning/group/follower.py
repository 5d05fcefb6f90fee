"""A member: the process of one of several learners, beside the one in the run's own process.

It holds the same networks and optimisers, computes the gradient of its part of every batch and takes the same steps, so
its parameters and moments are always those of the others. Everything else (scheduled numbers, statistics, the
generator's state) is told with every update, and the parameters whenever they were changed by anything but an update.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from rookery.core.rng import Streams
from rookery.core.system.child import ANSWER, live, pack, unpack
from rookery.core.system.process import WorkerLost
from rookery.core.system.shared_memory import Layout, SharedArena
from rookery.core.tree import unflatten
from rookery.learning.group.all_reduce import ReduceGroup
from rookery.learning.learner import Learnable, Learner, Outputs


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """What a member is made of; travels to its process."""

    make: Callable[[], Learnable]
    size: int  # learners in the group
    axis: int  # of the rows of a batch
    device: str
    seconds: float  # that learners wait for one another
    start: str = "auto"  # how its process is started


@dataclass(frozen=True, slots=True)
class Task:
    """One named update; the arrays are in shared memory."""

    name: str
    rows: int  # of the whole batch
    batch: Layout
    numbers: Layout  # what is told with every update
    fresh: Layout | None  # parameters and moments, if they are new
    updates: int
    threads: int


def is_told(key: str) -> bool:
    """Whether a learner's tensor is told with every update; the others are what updates compute."""
    return key == "knobs" or key.endswith(".stats")


def device_of(spec: GroupSpec, rank: int) -> str:
    """Every learner has a GPU of its own."""
    return f"cuda:{rank}" if spec.device.startswith("cuda") else spec.device


def digest(learner: Learner) -> str:
    """Of all that must be the same in all learners between two updates."""
    sha256 = hashlib.sha256()
    for key, tensor in sorted(learner.tensors.items()):
        if not is_told(key):
            sha256.update(tensor.detach().cpu().numpy().tobytes())
    return sha256.hexdigest()


def shared_update(
    learner: Learner, group: ReduceGroup, run: Callable[..., Outputs], task: tuple[str, Any, int]
) -> Outputs:
    """run(name, part) while the words of its update are those of a group; task: (name, whole batch, its rows)."""
    name, batch, rows = task
    part = group.part_of(batch, rows)
    learner.eager._shares = group
    try:
        with group.update(rows // group.size):
            return run(name, part)
    finally:
        learner.eager._shares = None


class Member:
    """One learner; answers requests by name."""

    endures = False  # after an error it ends, so that nobody waits for its gradient

    def __init__(self, spec: GroupSpec, rank: int, arenas: tuple[SharedArena, SharedArena, SharedArena]):
        device = device_of(spec, rank)
        self.learner = Learner(spec.make(), Streams(0), device=device)  # its numbers come with the first task
        self.group = ReduceGroup(rank, spec.size, spec.axis, self.learner.device)
        self._seconds = spec.seconds
        self._batch, self._told, self._fresh = arenas

    def answer(self, request: bytes) -> bytes:
        name, args = unpack(request)
        try:
            return pack(getattr(self, f"do_{name}")(*args), ANSWER)
        except (EOFError, OSError, WorkerLost):
            sys.exit()  # whoever is to blame is not this one

    def close(self) -> None:
        """It has nothing that does not go with its process."""

    def do_join(self, place: str, secret: bytes) -> None:
        self.group.join(place, secret, self._seconds)

    def do_update(self, task: Task) -> tuple[dict[str, np.ndarray], np.ndarray]:
        learner = self.learner
        if torch.get_num_threads() != task.threads:
            torch.set_num_threads(task.threads)  # a norm has other bits with other threads
        numbers = self._told.arrays(task.numbers)
        learner.generator.set_state(torch.from_numpy(numbers["generator"]).clone())
        _take(learner, ((key, array) for key, array in numbers.items() if key != "generator"))
        if task.fresh is not None:
            _take(learner, self._fresh.arrays(task.fresh).items())
        learner.updates = task.updates
        batch = {key: torch.from_numpy(array) for key, array in self._batch.arrays(task.batch).items()}
        out = shared_update(learner, self.group, learner.run, (task.name, unflatten(batch), task.rows))
        return {key: array.cpu().numpy() for key, array in out.arrays.items()}, out.numbers

    def do_digest(self) -> str:
        return digest(self.learner)


def _take(learner: Learner, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    with torch.no_grad():
        for key, array in arrays:
            learner.tensors[key].copy_(torch.from_numpy(array))


def serve_member(
    pipe: Connection, parent: int, arenas: tuple[SharedArena, SharedArena, SharedArena], spec: GroupSpec, rank: int
) -> None:
    """The life of a member."""
    torch.set_flush_denormal(True)  # as the run's own process does, or bits would differ
    live(pipe, parent, lambda: Member(spec, rank, arenas))
