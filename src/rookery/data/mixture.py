"""Mixture: every batch is composed of fixed shares of rows from several stores.

The first store is the living one: it takes the chunks of the collectors and decides when learning may happen.
Each store draws in its own way and as many rows as it was made for; the mixture lays them one after the other
into one batch, whose tensors are the same objects every time, and gives each store back its own keys with its own
rows of what the update answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rookery.core.chunk import Chunk
from rookery.core.errors import UsageError
from rookery.core.tree import Tree, flatten, tree_map, unflatten
from rookery.data.aligned import aligned_zeros
from rookery.data.shares import NEARLY
from rookery.data.store import Store


class Mixture(Store):
    """A `Store` over named stores with their shares of each batch, which add up to 1."""

    def __init__(self, stores: Mapping[str, Store], shares: Mapping[str, float]):
        if not stores or list(stores) != list(shares) or abs(sum(shares.values()) - 1) > NEARLY:
            raise UsageError(
                "a mixture needs a share for each of its stores, and shares that add up to 1; "
                f"got stores {list(stores)} and shares {dict(shares)}."
            )
        self._stores, self._shares = dict(stores), dict(shares)
        self._main = next(iter(self._stores.values()))
        self._batch: dict[str, Tree] = {}
        self._cuts: list[int] = []  # where each store's rows begin, and the end
        self._parts: list[list[tuple[np.ndarray, str]]] = []  # per store: (rows to fill, path of the leaf)

    @property
    def size(self) -> int:
        return sum(store.size for store in self._stores.values())

    @property
    def saved_bytes(self) -> int:
        return self._main.saved_bytes

    @property
    def owed(self) -> float:
        return self._main.owed

    def clock(self, steps: int) -> None:
        for store in self._stores.values():
            store.clock(steps)

    def add(self, chunk: Chunk) -> None:
        self._main.add(chunk)

    def ready(self) -> bool:
        return all(store.ready() for store in self._stores.values())

    def sample(self) -> tuple[dict[str, Tree], list[Any]]:
        """One batch; the keys are those of the stores, in their order."""
        drawn = [store.sample() for store in self._stores.values()]
        flat = [flatten(batch) for batch, _ in drawn]
        if not self._batch:
            self._make(flat)
        for parts, leaves in zip(self._parts, flat):
            for rows, path in parts:
                rows[...] = leaves[path].numpy().reshape(rows.shape)
        return dict(self._batch), [keys for _, keys in drawn]

    def _make(self, flat: list[dict[str, torch.Tensor]]) -> None:
        """Arrays for the whole batch, once it is known what the stores hand out."""
        first, counts = flat[0], [len(next(iter(leaves.values()))) for leaves in flat]
        for name, leaves, count in zip(self._stores, flat, counts):
            # by size and not by shape: stacked frames may lie on an axis of their own
            wanted = {path: (leaf.dtype, leaf[0].numel()) for path, leaf in first.items()}
            fields = {path: (leaf.dtype, leaf[0].numel()) for path, leaf in leaves.items()}
            if fields != wanted:
                raise UsageError(
                    f"store '{name}' hands out {fields}, the first one {wanted}: they cannot be one batch."
                )
            if abs(count - self._shares[name] * sum(counts)) > NEARLY * sum(counts):
                raise UsageError(
                    f"store '{name}' hands out {count} of {sum(counts)} rows, "
                    f"which is not its share of {self._shares[name]:g}."
                )
        self._cuts = [0, *np.cumsum(counts).tolist()]
        arrays = {
            path: aligned_zeros((sum(counts), *leaf.shape[1:]), leaf.numpy().dtype) for path, leaf in first.items()
        }
        for start, stop in zip(self._cuts, self._cuts[1:]):
            self._parts.append([(array[start:stop], path) for path, array in arrays.items()])
        self._batch = tree_map(torch.from_numpy, unflatten(arrays))

    def feedback(self, keys: list[Any], outputs: dict[str, Any]) -> None:
        """Each store gets its keys and its rows; answers that are not per row go to all."""
        total = self._cuts[-1]
        for store, own, start, stop in zip(self._stores.values(), keys, self._cuts, self._cuts[1:]):
            store.feedback(
                own,
                {
                    name: value[start:stop] if getattr(value, "shape", ())[:1] == (total,) else value
                    for name, value in outputs.items()
                },
            )

    def metrics(self) -> dict[str, float]:
        """Those of the first store, and of the others with their name before."""
        metrics = self._main.metrics()
        for name, store in list(self._stores.items())[1:]:
            metrics |= {f"{name}_{key}": value for key, value in store.metrics().items()}
        return metrics

    def counts(self) -> dict[str, int]:
        """Those of the first store, if it counts anything."""
        return self._main.counts()

    def state(self) -> dict[str, Any]:
        return {name: store.state() for name, store in self._stores.items()}

    def restore(self, state: dict[str, Any]) -> None:
        for name, store in self._stores.items():
            store.restore(state[name])
