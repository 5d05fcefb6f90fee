"""Leader: the first of several learners, in the run's own process. To everybody else it is one learner.

    batch → shared memory → every learner: gradient of its part → mean of all (before limits) → the same step everywhere
          ← rows of arrays in order, means of the numbers

A group that has lost a member is ended as a whole; the next update starts another one with the numbers that the leader
has then. What cannot be shared is refused: modules whose output depends on the other rows of the batch, or that draw by
themselves, when the run is built; losses that are no means over rows, by comparing the gradients of each update's first
batch with those of the whole batch.
"""

from __future__ import annotations

import logging
import os
import secrets
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn

from rookery.core.errors import BrokenView, ConfigError, LearnerLost
from rookery.core.rng import Streams
from rookery.core.system.child import unpack
from rookery.core.system.process import STARTING, Process, WorkerLost
from rookery.core.system.shared_memory import Layout, SharedArena, layout_of
from rookery.core.tree import Tree, flatten
from rookery.learning.group.all_reduce import ReduceGroup, Witness, rows_in
from rookery.learning.group.follower import GroupSpec, Task, device_of, digest, is_told, serve_member, shared_update
from rookery.learning.learner import Learnable, Learner, Outputs

log = logging.getLogger("rookery.learning")
PARTING = 3.0  # seconds for a process to end
ALIKE = 1e-3  # relative distance of two gradients; rounding is far below, a loss that cannot be shared far above
BY_NAME = ("BatchNorm", "BatchRenorm", "Dropout")  # parts of the names of classes, users' own ones included


class LearnerProcess(Process):
    """One of the other learners; no daemon, for the run may be one's child."""

    title, option = "learner", "pool.start"


class Leader(Learner):
    """A learner whose updates are shared by `spec.size` processes, this one included.

    They start with the first update.
    """

    def __init__(self, algo: Learnable, streams: Streams, spec: GroupSpec):
        super().__init__(algo, streams, device=device_of(spec, 0))
        _check_shareable(self, spec.size)
        self.spec = spec
        self.group = ReduceGroup(0, spec.size, spec.axis, self.device)
        self._members: list[LearnerProcess] = []
        self._arenas: tuple[SharedArena, ...] = ()
        self._versions: list[int] = []  # of the tensors that members have
        self._proven: set[str] = set()  # updates whose gradients were compared

    @property
    def pids(self) -> list[int]:
        """Of the other learners, while there are any."""
        return [member.pid for member in self._members]

    def run(self, name: str, batch: dict[str, Tree]) -> Outputs:
        """One named update on a batch, by all learners."""
        rows = rows_in(batch, self.group.axis, self.group.size)
        witness = None if name in self._proven else self._alone(name, batch)
        if not self._members:
            self._start()
        try:
            self._tell(name, batch, rows)
            self.group.gradients = None if witness is None else []
            before = {key: t.clone() for key, t in self.tensors.items() if is_told(key)} if witness else {}
            own = shared_update(self, self.group, super().run, (name, batch, rows))
            others = [unpack(member.answer(self.spec.seconds)) for member in self._members]
        except WorkerLost as error:
            raise self._autopsy(error) from None
        except BaseException:
            self.close()  # members wait for a gradient that will never come
            raise
        self._versions = self._now()
        if witness is not None:
            self._compare(name, witness, before)
        arrays = {
            key: self.group.joined(key, [mine, *(torch.from_numpy(a[key]).to(self.device) for a, _ in others)])
            for key, mine in own.arrays.items()
        }
        numbers = np.stack([own.numbers, *(theirs for _, theirs in others)]).mean(0, dtype=np.float64)
        return Outputs(arrays, own.names, np.asarray(numbers, np.float32))

    def check(self, *, deep: bool = False) -> None:
        """Deep (once per checkpoint): all learners have the same numbers."""
        super().check(deep=deep)
        if not deep or not self._members or self._versions != self._now():
            return
        try:
            for member in self._members:
                member.ask("digest")
            digests = [unpack(member.answer(self.spec.seconds)) for member in self._members]
        except WorkerLost:
            return self.close()  # nothing is lost between two updates
        mine = digest(self)
        for number, theirs in enumerate(digests, 1):
            if theirs != mine:
                raise BrokenView(
                    f"learner {number} of learning.learners={self.spec.size} has other weights than learner 0 after "
                    "the same updates. Does a module of the network keep numbers outside of its parameters and "
                    "buffers? Set learning.learners=1."
                )
        return None

    def close(self) -> None:
        """End the other learners."""
        for member in self._members:
            member.part()
        self.group.close()
        for member in self._members:
            member.end(PARTING)
        for arena in self._arenas:
            arena.close()
        self._members, self._arenas = [], ()

    # --- the group ---

    def _start(self) -> None:
        spec = self.spec
        self._arenas, self._versions = (SharedArena(), SharedArena(), SharedArena()), []
        try:
            for rank in range(1, spec.size):
                made_of = (self._arenas, spec, rank)
                self._members.append(LearnerProcess(rank, spec.start, serve_member, made_of))
            for member in self._members:
                member.answer(STARTING)
            self._meet()
        except WorkerLost as error:
            raise self._autopsy(error) from None
        except BaseException:
            self.close()
            raise
        log.info("learners: %s", ", ".join(f"{n} (pid {pid})" for n, pid in enumerate([os.getpid(), *self.pids])))

    def _meet(self) -> None:
        """In a folder that only this user can open; when all have met, nobody needs it any more."""
        with TemporaryDirectory(prefix="rookery-learners-") as folder:
            meeting = os.path.join(folder, "meeting"), secrets.token_bytes(32)
            for member in self._members:
                member.ask("join", *meeting)
            self.group.join(*meeting, self.spec.seconds)
            for member in self._members:
                member.answer(self.spec.seconds)

    def _tell(self, name: str, batch: dict[str, Tree], rows: int) -> None:
        """Batch and numbers into shared memory, then the task to everybody."""
        numbers = {key: tensor for key, tensor in self.tensors.items() if is_told(key)}
        numbers["generator"] = self.generator.get_state()
        where = _written(self._arenas[0], flatten(batch)), _written(self._arenas[1], numbers)
        fresh = None
        if self._versions != self._now():
            weights = {key: tensor for key, tensor in self.tensors.items() if not is_told(key)}
            fresh = _written(self._arenas[2], weights)
        task = Task(name, rows, *where, fresh, self.updates, torch.get_num_threads())
        for member in self._members:
            member.ask("update", task)

    def _now(self) -> list[int]:
        """Torch counts the writes to every tensor: other counts, and somebody has set weights."""
        return [tensor._version for key, tensor in self.tensors.items() if not is_told(key)]

    def _autopsy(self, lost: WorkerLost) -> LearnerLost:
        """Which learner is gone, and how; the group is ended.

        An error that a learner itself has told is raised here.
        """
        gone = [f"learner {member.number} (pid {member.pid}) {how}" for member, how in self._gone()]
        try:
            for member in self._members:
                if member.pipe.poll(0):
                    member.answer(0.0)
        except WorkerLost:
            pass
        finally:
            self.close()
        what = "; ".join(gone) or (
            f"the learners waited {self.spec.seconds:g} s (learning.deadline) for one another: "
            f"{str(lost).partition(chr(10))[0]}"
        )
        return LearnerLost(f"{what}.")

    def _gone(self) -> list[tuple[Process, str]]:
        """Members that were ended by something; if none, those that ended by themselves."""
        dead = [member for member in self._members if _dead(member)]
        killed = [member for member in dead if (member.process.exitcode or 0) < 0]
        return [(member, member.exit_message()) for member in killed or dead]

    # --- what cannot be shared ---

    def _alone(self, name: str, batch: dict[str, Tree]) -> Witness:
        """The gradients of the whole batch. All numbers are as before afterwards."""
        saved = {key: tensor.clone() for key, tensor in self.tensors.items()}
        drawn, own, metrics = self.generator.get_state(), self.own_draws.state(), self.eager._metrics
        witness, s = Witness(), self.eager
        s._shares = witness
        try:
            self.own_draws.run(name, s.execute, self.algo, name, self._here(batch))
        finally:
            s._shares, s._metrics = None, metrics
            for key, tensor in saved.items():
                self.tensors[key].copy_(tensor)
            self.generator.set_state(drawn)
            self.own_draws.restore(own)
        return witness

    def _compare(self, name: str, witness: Witness, before: dict[str, Tensor]) -> None:
        """Refuse an update whose parts do not add up to the whole."""
        gradients, self.group.gradients = self.group.gradients or [], None
        why = f"update {name!r} cannot be shared by learning.learners={self.spec.size}:"
        for net in self.nets.values():
            if not net.is_target and not torch.equal(net.stats, before[f"{net.name}.stats"]):
                self.close()
                raise ConfigError(
                    f"{why} network {net.name!r} takes statistics of the batch while it learns, "
                    "and every learner sees a part. Set learning.learners=1."
                )
        for ours, whole in zip(gradients, witness.gradients, strict=True):
            apart, scale = torch.linalg.vector_norm(ours - whole), torch.linalg.vector_norm(whole)
            if not bool(apart <= ALIKE * scale + 1e-7) and bool(
                torch.isfinite(scale)
            ):  # what is not finite is the sentinel's
                self.close()
                raise ConfigError(
                    f"{why} its gradient is {float(apart / scale):.1%} off that of the whole batch, so its loss is no "
                    "mean over rows (docs/scaling.md). Set learning.learners=1."
                )
        self._proven.add(name)


def _written(arena: SharedArena, tensors: dict[str, Tensor]) -> Layout:
    arrays = {key: tensor.detach().cpu().numpy() for key, tensor in tensors.items()}
    layout = layout_of(arrays)
    for key, shared in arena.arrays(layout).items():
        shared[...] = arrays[key]
    return layout


def _dead(member: Process) -> bool:
    member.process.join(1.0)
    return not member.process.is_alive()


def _check_shareable(learner: Learner, size: int) -> None:
    for net in learner.nets.values():
        for path, module in net.module.named_modules():
            kinds = [kind.__name__ for kind in type(module).__mro__ if issubclass(kind, nn.Module)]
            if any(word in kind for word in BY_NAME for kind in kinds) and getattr(module, "p", 1.0) > 0:
                raise ConfigError(
                    f"learning.learners={size}: {path} of network {net.name!r} is a {kinds[0]}, whose output depends "
                    "on the whole batch or on random numbers of its own, and every learner sees a part. Use layer "
                    "normalisation, or set learning.learners=1."
                )
