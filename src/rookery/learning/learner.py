"""Learner: an algorithm's numbers and the execution of its named updates, eager or compiled.

The numbers are named flat tensors (value and statistics per network, moments per optimiser, knobs), the same in both
modes, so a checkpoint does not know the mode. The first batch of an update fixes its signature in both modes.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rookery.core.errors import BatchError, CheckpointError, CompileError, ConfigError, Interrupted
from rookery.core.rng import Streams, seeded
from rookery.core.schedule import Schedule
from rookery.core.tree import Tree, flatten, tree_map, walk
from rookery.learning.compiled.cache import Cache
from rookery.learning.flat import FlatNetwork
from rookery.learning.module_rng import OwnDraws
from rookery.learning.network_memory import WithinMemory
from rookery.learning.optim import Optimiser
from rookery.learning.update_words import Eager, Outputs, Rows, Traced, split
from rookery.nets.noisy import resample
from rookery.nets.normalise import observe

log = logging.getLogger("rookery.learning")
Mode = Literal["eager", "compiled"]
Signature = list[tuple[str, torch.Size, torch.dtype]]
Busy = Callable[[str], AbstractContextManager[Callable[[str], None]]]


@contextmanager
def unseen(text: str) -> Iterator[Callable[[str], None]]:
    """Shows nothing; what a `busy` gives is called with the closing line."""
    yield lambda line: None


class Learnable(Protocol):
    """What a learner needs of an algorithm."""

    targets: dict[str, str]  # target → the network it follows
    schedule: dict[str, int]  # named update → it runs at every n-th call of `step`

    def networks(self) -> dict[str, nn.Module]: ...
    def optimisers(self) -> dict[str, Optimiser]: ...
    def chosen(self, own: Optimiser) -> Optimiser: ...
    def knobs(self) -> dict[str, Schedule]: ...
    def prepare(self, s: Any, b: Any) -> dict[str, Tensor]: ...


def signature(batch: Tree) -> Signature:
    return [(path, leaf.shape, leaf.dtype) for path, leaf in sorted(walk(batch))]


def check_batch(name: str, expected: Signature, batch: dict[str, Tensor]) -> None:
    """An artefact reads whatever memory it is given, so a batch unlike the first must never reach it."""
    for key, shape, dtype in expected:
        t = batch.get(key)
        if t is None or t.shape != shape or t.dtype is not dtype or not t.is_contiguous():
            got = (
                "nothing"
                if t is None
                else f"{t.dtype} {tuple(t.shape)}" + ("" if t.is_contiguous() else ", not contiguous")
            )
            raise BatchError(
                f"update {name!r} was built for {key}: {dtype} {tuple(shape)}, got {got}. "
                "Every batch of one update must have the same shapes and dtypes, in contiguous memory."
            )
    if len(batch) != len(expected):
        extra = sorted(set(batch) - {key for key, _, _ in expected})
        raise BatchError(
            f"update {name!r} was built without the fields {extra}: every batch must have the same fields."
        )


class Learner:
    """Owns the tensors; `step(batch)` runs every named update that is due.

    Args:
        algo: an `Algorithm`, or anything with networks, optimisers, knobs and updates (`Learnable`).
        streams: of random numbers: the first weights, the updates' own draws.
        mode: eager, or compiled: every named update as one artefact of machine code.
        cache: folder of artefacts; None: the user's own.
        device: of the tensors.
        fall_back: whether an update that cannot be compiled runs eagerly; else it is an error.
    """

    def __init__(
        self,
        algo: Learnable,
        streams: Streams,
        *,
        mode: Mode = "eager",
        cache: Cache | Path | None = None,
        device: str = "cpu",
        fall_back: bool = False,
    ):
        self.algo, self.mode, self.cache, self.device = algo, mode, cache, torch.device(device)
        self.fall_back = fall_back  # whether an update that cannot be compiled may run eagerly
        self.note = ""  # why it does
        self.hurried = ""  # an update that runs eagerly for now: the run is ending, and nobody waits for the compiler
        self.busy: Busy = unseen  # shows people that a build takes its time
        with seeded(streams.seed_of("networks")), WithinMemory():
            modules = {name: module.to(self.device) for name, module in algo.networks().items()}
        self.nets = {name: FlatNetwork(name, module) for name, module in modules.items()}
        for target, source in algo.targets.items():
            self.nets[target] = FlatNetwork(target, self.nets[source].module, self.nets[source])
        self.optimisers = {name: algo.chosen(optimiser) for name, optimiser in algo.optimisers().items()}
        self.knob_names = tuple(algo.knobs())
        self.tensors = self._named_tensors()
        self._knobs = self.tensors["knobs"].numpy() if self.device.type == "cpu" else None
        self.generator = streams.torch("learner")
        self.eager = Eager(self.nets, self.optimisers, self.tensors, self.knob_names, generator=self.generator)
        self.signatures: dict[str, Signature] = {}
        self.compiled: dict[str, Any] = {}  # name → Artefact
        self.own_draws = OwnDraws(streams.seed_of("modules"))
        self.updates = 0
        self.kept: dict[str, Tree] = {}  # tensors that an algorithm keeps from batch to batch
        self._noisy = [net.frozen for net in self.nets.values() if net.noise]

    def _named_tensors(self) -> dict[str, Tensor]:
        tensors = {"knobs": torch.zeros(len(self.knob_names), device=self.device)}
        for name, net in self.nets.items():
            tensors |= {f"{name}.value": net.value, f"{name}.stats": net.stats}
        for name, optimiser in self.optimisers.items():
            moved = optimiser.of or name
            if moved not in self.nets or self.nets[moved].is_target:
                raise ConfigError(
                    f"there is an optimiser for {moved!r}, but no such network (networks: {list(self.nets)})"
                )
            if moved != name and name in self.nets:
                raise ConfigError(f"optimiser {name!r} moves {moved!r}, but there is a network {name!r}: rename it")
            if optimiser.lr not in self.knob_names:
                raise ConfigError(
                    f"optimiser {name!r} takes its rate from knob {optimiser.lr!r}; knobs: {self.knob_names}"
                )
            net = self.nets[moved]
            self.optimisers[name] = optimiser = optimiser.fitted(tuple(p.shape for p in net.params.values()))
            tensors |= {f"{name}.{slot}": t for slot, t in optimiser.init(net.value).items()}
        return tensors

    def set_knobs(self, values: dict[str, float]) -> None:
        """Write the scheduled numbers that updates read as `s.knob.name`."""
        for i, name in enumerate(self.knob_names):
            if self._knobs is not None:
                self._knobs[i] = values[name]
            else:
                self.tensors["knobs"][i] = values[name]

    def prepare(self, batch: dict[str, Tree]) -> dict[str, Tree]:
        """The algorithm's `prepare`: once per sampled batch, without gradient."""
        with torch.no_grad():
            return self.algo.prepare(self.eager, Rows(self._here(batch)))

    def observe(self, obs: Tree) -> None:
        """Show raw observations [N, …] to the normalisers of every network; targets get them with the next `follow`."""
        for net in self.nets.values():
            if not net.is_target:
                observe(net.module, obs)

    def resample(self) -> None:
        """New noise for the noisy layers of every network and target;
        before each update, and by the trainer before each round.
        """
        for module in self._noisy:
            resample(module, self.generator)

    def step(self, batch: dict[str, Tree], name: str | None = None) -> list[Outputs]:
        """Every named update that is due, in the order of the schedule, or only `name`; counts as one update."""
        self.updates += 1
        self.resample()
        if name is not None:
            return [self.run(name, batch)]
        return [self.run(name, batch) for name, every in self.algo.schedule.items() if self.updates % every == 0]

    def run(self, name: str, batch: dict[str, Tree]) -> Outputs:
        """One named update on a batch."""
        artefact = self.compiled.get(name)
        if artefact is not None and artefact.knows(batch):
            return artefact()
        batch = self._here(batch)
        flat = batch if all(isinstance(v, Tensor) for v in batch.values()) else flatten(batch)
        if name not in self.signatures:
            self._build(name, batch)
            artefact = self.compiled.get(name)
        check_batch(name, self.signatures[name], flat)
        if artefact is not None:
            artefact.take(batch, flat)
            return artefact()
        s = self.eager
        returned = self.own_draws.run(name, s.execute, self.algo, name, batch)
        arrays, metrics = split(s._metrics, returned)
        if self.device.type == "cpu":
            numbers = np.array([number.item() for number in metrics.values()], np.float32)
        else:  # one transfer
            numbers = torch.stack([n.float() for n in metrics.values()]).cpu().numpy() if metrics else np.zeros(0, "f4")
        return Outputs(arrays, tuple(metrics), numbers)

    def _here(self, batch: dict[str, Tree]) -> dict[str, Tree]:
        if self.device.type == "cpu":
            return batch
        return tree_map(lambda t: t.to(self.device), batch)

    def _build(self, name: str, batch: dict[str, Tree]) -> None:
        self.signatures[name] = signature(batch)
        if self.mode == "compiled" and self._minimises(name, batch):
            from rookery.learning.compiled.artefact import Artefact

            try:
                with seeded(0):  # tracing runs the update once in the open, and the caller's generators must not notice
                    self.compiled[name] = Artefact(self, name, batch)
            except Interrupted:
                self.hurried = f"a signal came while update {name!r} was compiled, so its round was done eagerly"
            except CompileError as error:
                if not self.fall_back or self.compiled:
                    raise
                self.mode, self.note = "eager", str(error)  # before the first update: it never changes in the middle
                log.warning("learning.mode=auto runs eagerly: %s", error)

    def dry_run(self, name: str, batch: dict[str, Tree]) -> Traced:
        """The update once on copies of all tensors:
        tells which random numbers it draws and whether it minimises anything.
        """
        words = Traced(self.nets, self.optimisers, {k: t.clone() for k, t in self.tensors.items()}, self.knob_names)
        words._batch = Rows(batch)
        getattr(self.algo, name)(words, words._batch)
        return words

    def _minimises(self, name: str, batch: dict[str, Tree]) -> bool:
        """An update that only copies is one kernel already and stays eager."""
        with seeded(0):
            return self.dry_run(name, batch)._minimised

    def check(self, *, deep: bool = False) -> None:
        """Once per report: the views are whole.

        Deep (once per checkpoint): no number baked into an artefact has changed.
        """
        for net in self.nets.values():
            net.check()
        if deep:
            for name, artefact in self.compiled.items():
                artefact.check(self, name)

    def learned(self) -> Iterator[tuple[str, Tensor]]:
        """Every learned tensor in a fixed order: parameters and statistics of all networks and targets."""
        return ((k, t) for k, t in sorted(self.tensors.items()) if k.endswith((".value", ".stats")))

    def weights_sha256(self) -> str:
        digest = hashlib.sha256()
        for key, tensor in self.learned():
            digest.update(key.encode())
            digest.update(tensor.detach().cpu().numpy().tobytes())
        return digest.hexdigest()

    def weights(self) -> dict[str, Any]:
        """What acting needs and another run can start from: parameters, statistics, and the layout they belong to."""
        layout = {
            name: {"parameters": shapes(net.params), "buffers": shapes(net.buffers)} for name, net in self.nets.items()
        }
        return {"layout": layout, "tensors": {k: t.detach().clone() for k, t in self.learned()}}

    def set_weights(self, weights: dict[str, Any]) -> None:
        """Take parameters and statistics from `weights()`; every mismatch is listed."""
        problems = []
        for name, net in self.nets.items():
            layout = weights["layout"].get(name)
            mine = {"parameters": shapes(net.params), "buffers": shapes(net.buffers)}
            if layout != mine:
                problems.append(f"{name}: expected {mine}, got {layout}")
        if problems:
            raise CheckpointError("the weights do not fit these networks:\n  " + "\n  ".join(problems))
        take_over(dict(self.learned()), weights["tensors"], "the learned tensors")

    def _slots(self) -> dict[str, Tensor]:
        """Moments of the optimisers, and knobs."""
        return {k: t for k, t in self.tensors.items() if not k.endswith((".value", ".stats"))}

    def state(self) -> dict[str, Any]:
        return self.weights() | {
            "kept": tree_map(torch.clone, self.kept),
            "slots": {k: t.clone() for k, t in self._slots().items()},
            "updates": self.updates,
            "own_draws": self.own_draws.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.set_weights(state)
        take_over(self._slots(), state["slots"], "the state of the optimisers")
        self.updates = int(state["updates"])
        self.own_draws.restore(state["own_draws"])
        self.kept = tree_map(lambda x: torch.as_tensor(x, device=self.device).clone(), state["kept"])


def take_over(tensors: dict[str, Tensor], saved: dict[str, Any], what: str) -> None:
    """Copy saved values into the tensors of the same names; `copy_` alone would repeat and cast them until they fit."""
    values = {name: torch.as_tensor(value) for name, value in saved.items()}
    wanted, got = [{name: f"{t.dtype} {tuple(t.shape)}" for name, t in part.items()} for part in (tensors, values)]
    problems = [
        f"{name}: expected {wanted.get(name, 'nothing')}, got {got.get(name, 'nothing')}"
        for name in {**wanted, **got}
        if wanted.get(name) != got.get(name)
    ]
    if problems:
        raise CheckpointError(f"{what} in the checkpoint are not those of this algorithm:\n  " + "\n  ".join(problems))
    for name, tensor in tensors.items():
        tensor.copy_(values[name])


def shapes(tensors: dict[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(t.shape) for name, t in tensors.items()}
