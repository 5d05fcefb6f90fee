"""ReduceGroup: what the learners of one group do together, as one of them sees it.

    ∇L = 1/N Σ_r ∇L_r        L_r: the loss on part r of the batch, N equal parts in the order of the learners

This is the gradient of the whole batch for every loss that is a sum of means over rows: a mean over equally many rows
by itself, and a mean over valid rows because it is divided by the valid rows of the *average* part (`core.counting`);
what a loss takes from the largest number of the batch (`largest_of`) is the largest of all parts.
What is no such sum (a product of two means, a comparison of rows with one another) is noticed by the `Witness`, which
sees the whole batch once. Random numbers are drawn for the whole batch by everybody, who keep their part.

Learners meet in a file of a private folder and talk over the loopback interface, where others of this machine can reach
them, too: so each first proves that it knows the secret that came through its pipe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rookery.core.counting import counting
from rookery.core.errors import BatchError, ConfigError
from rookery.core.system.process import WorkerLost
from rookery.core.tree import Tree, leaves, tree_map

HERE = "127.0.0.1"  # all learners are on one machine


class ReduceGroup:
    """One of `size` learners; `axis` is that of the rows of a batch (1 for sequences [T, B])."""

    def __init__(self, rank: int, size: int, axis: int, device: torch.device):
        self.rank, self.size, self.axis, self.device = rank, size, axis, device
        self.gradients: list[Tensor] | None = None  # kept if a list is here
        self._rows = 0  # of each part
        self._counted: list[tuple[Tensor, Tensor]] = []
        self._group: Any = None

    def join(self, place: str, secret: bytes, seconds: float) -> None:
        """Meet the others in a file; returns when all are there."""
        wait = timedelta(seconds=seconds)
        try:
            store = dist.FileStore(place, self.size)
            store.set_timeout(wait)
            self._group = _process_group(store, self.rank, self.size, wait, self.device)
        except RuntimeError as error:
            raise WorkerLost(f"did not meet the others: {error}") from error
        self._prove(secret)

    def _prove(self, secret: bytes) -> None:
        """Everybody adds what only the secret tells: a stranger in anybody's place would spoil the sum."""
        shares = [hashlib.sha256(secret + rank.to_bytes(4, "little")).digest() for rank in range(self.size)]
        numbers = torch.tensor([list(share) for share in shares], device=self.device)
        total = numbers[self.rank].clone()
        self._sum(total)
        if not torch.equal(total, numbers.sum(0)):
            raise WorkerLost("met somebody who does not know the secret of this run")

    def close(self) -> None:
        self._group = None

    @contextmanager
    def update(self, rows: int) -> Iterator[None]:
        """Around an update on a part of so many rows."""
        self._rows, self._counted = rows, []
        with counting(self._count, self._largest):
            yield
        self._counted = []

    def average(self, grad: Tensor) -> None:
        """In place: the mean over the learners, the same bits in all of them."""
        self._sum(grad)
        grad.div_(self.size)
        if self.gradients is not None:
            self.gradients.append(grad.clone())

    def whole(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape for the whole batch of what has this one for a part."""
        at = row_axis(shape, self._rows, self.axis)
        return shape if at is None else (*shape[:at], shape[at] * self.size, *shape[at + 1 :])

    def part(self, drawn: Tensor, shape: tuple[int, ...]) -> Tensor:
        at = row_axis(shape, self._rows, self.axis)
        return drawn if at is None else drawn.narrow(at, self.rank * self._rows, self._rows).contiguous()

    def part_of(self, batch: Tree, rows: int) -> Tree:
        """This learner's rows of a batch of `rows`, in contiguous memory."""
        each = rows // self.size

        def own(leaf: Tensor) -> Tensor:
            at = row_axis(tuple(leaf.shape), rows, self.axis)
            return leaf if at is None else leaf.narrow(at, self.rank * each, each).contiguous()

        return tree_map(own, batch)

    def joined(self, key: str, parts: list[Tensor]) -> Tensor:
        """The rows of all learners in order."""
        at = row_axis(tuple(parts[0].shape), self._rows, self.axis)
        if at is None:
            raise BatchError(
                f"the update gave {key!r} of shape {tuple(parts[0].shape)} for {self._rows} rows: with "
                f"learning.learners={self.size} an array must have one entry per row of the batch. Return a "
                "number, or set learning.learners=1."
            )
        return torch.cat(parts, at)

    def _count(self, valid: Tensor) -> Tensor:
        """Valid rows of the average part. The same mask is counted once per update."""
        for known, count in self._counted:
            if known is valid:
                return count
        total = valid.to(torch.bool).sum().to(torch.float32)
        self._sum(total)
        count = total.clamp(min=1.0) / self.size
        self._counted.append((valid, count))
        return count

    def _largest(self, own: Tensor) -> Tensor:
        """Of the numbers of all learners."""
        largest = own.detach().clone()
        self._reduce(largest, dist.ReduceOp.MAX)
        return largest

    def _sum(self, tensor: Tensor) -> None:
        self._reduce(tensor, dist.ReduceOp.SUM)

    def _reduce(self, tensor: Tensor, how: Any) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = how
        try:
            self._group.allreduce([tensor], options).wait()
        except RuntimeError as error:  # nobody to be named: the others' connections break, too
            raise WorkerLost(str(error)) from error


class Witness:
    """One learner alone with the whole batch; keeps the gradients to compare."""

    def __init__(self) -> None:
        self.gradients: list[Tensor] = []

    def average(self, grad: Tensor) -> None:
        self.gradients.append(grad.clone())

    def whole(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def part(self, drawn: Tensor, shape: tuple[int, ...]) -> Tensor:
        return drawn


def row_axis(shape: tuple[int, ...], rows: int, axis: int) -> int | None:
    """Where an array has its rows; None: it has none (one number for the whole batch)."""
    if len(shape) > axis:
        return axis if shape[axis] == rows else None
    return 0 if shape and shape[0] == rows else None  # one weight per sequence


def rows_in(batch: Tree, axis: int, size: int) -> int:
    """Rows of a batch, which `size` learners can share."""
    counts = {int(leaf.shape[axis]) for leaf in leaves(batch) if leaf.dim() > axis}
    if len(counts) != 1:
        raise BatchError(
            f"expected equally many rows in every field of a batch along dimension {axis}, got {sorted(counts)}: "
            "several learners (learning.learners) cannot share it. Set learning.learners=1."
        )
    rows = counts.pop()
    if rows % size:
        raise ConfigError(
            f"a batch of {rows} rows cannot be shared equally by learning.learners={size}. "
            "Change the size of the batches, or learning.learners."
        )
    return rows


def _process_group(store: Any, rank: int, size: int, timeout: timedelta, device: torch.device) -> Any:
    """A group of its own: torch's global one belongs to whoever calls us."""
    if device.type == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(store, rank, size, options)
    gloo: Any = dist.ProcessGroupGloo
    options = (gloo._Options if hasattr(gloo, "_Options") else gloo.Options)()
    options._timeout, options._devices = timeout, [gloo.create_device(hostname=HERE)]
    return gloo(store, rank, size, options)
