"""Priorities: places of a store drawn in proportion to a power of their priority (Schaul 2016, proportional variant).

    P(i) = p_i^α / Σ_j p_j^α        w_i = (N · P(i))^−β / max_j w_j        p_i = given + ε

A place is whatever the store makes of it: a step, or the start of a sequence. It is empty (never drawn) until it is
inserted, and again after it is removed. A new place has the largest priority ever seen, 1 at first, so that it is drawn
soon; or the priority given with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rookery.core.errors import BatchError, CheckpointError
from rookery.kernels import sumtree

_NONE = np.zeros(0)


class Keys(NamedTuple):
    """What was drawn: places, and how often each had been filled by then,
    so that a late answer about an overwritten one is noticed.
    """

    address: np.ndarray  # int64 [N]
    stamp: np.ndarray  # int32 [N]

    def copy(self) -> Keys:
        return Keys(self.address.copy(), self.stamp.copy())


class Priorities:
    """A sum-tree over `places` places; knows nothing of what lies there."""

    def __init__(self, places: int, alpha: float, epsilon: float):
        self.places, self.alpha, self.epsilon = places, alpha, epsilon
        size = tree_size(places)
        self.tree = np.zeros(2 * size)
        self.leaves = self.tree[size : size + places]  # p^α, 0 where empty
        self.stamp = np.zeros(places, np.int32)
        self._top = np.ones(1)  # largest p^α ever seen

    @property
    def total(self) -> float:
        """Σ p^α; 0: nothing can be drawn."""
        return float(self.tree[1])

    def insert(self, address: np.ndarray, priority: np.ndarray | None = None) -> None:
        """Fill places (int64 [n], all different):
        at the largest priority so far, or at those given (float [n], see `check`).
        """
        priorities = _NONE if priority is None else np.asarray(priority, np.float64)
        sumtree.insert(self.tree, self.stamp, self._top, address, priorities, self.alpha, self.epsilon)

    def remove(self, address: np.ndarray) -> None:
        """Empty places (int64 [n]); those that are empty already stay so."""
        sumtree.remove(self.tree, address)

    def draw(self, uniform: np.ndarray, address: np.ndarray, mass: np.ndarray) -> None:
        """Fill address (int64 [n]) with places, one from each of n equal strata of the total,
        and mass (float64 [n]) with their p^α.

        uniform: n numbers in [0, 1). The total must be positive.
        """
        sumtree.draw(self.tree, uniform, address, mass)

    def weigh(self, mass: np.ndarray, beta: float, weight: np.ndarray) -> None:
        """Fill weight (float32 [n]) with the importance weights of a batch; β above 1 counts as 1."""
        sumtree.weigh(mass, min(max(beta, 0.0), 1.0), weight)

    def stamps(self, address: np.ndarray, out: np.ndarray) -> None:
        self.stamp.take(address, out=out, mode="clip")  # clip: numpy then needs no buffer; addresses are ours

    def update(self, keys: Keys, priority: Any) -> int:
        """Take the priorities [n] that an update found for what was drawn;
        returns how many of these places were still the same.

        Bad numbers are refused before anything is changed.
        """
        values = np.asarray(priority, np.float64)
        if values.shape != keys.address.shape:
            raise BatchError(
                f"feedback about {len(keys.address)} drawn steps needs a priority for each, got an array of shape "
                f"{values.shape}. The update must return `priority` as one number per row of its batch."
            )
        self.check(values, "feedback")
        return sumtree.update(
            self.tree, self.stamp, self._top, keys.address, keys.stamp, values, self.alpha, self.epsilon
        )

    @staticmethod
    def check(priority: np.ndarray, where: str) -> None:
        """Refuse priorities (float [n]) that no probability can be made of."""
        i = sumtree.bad(priority)
        if i >= 0:
            raise BatchError(
                f"{where}: priority {i} of {len(priority)} is {priority[i]}; expected finite numbers ≥ 0 (such as "
                "absolute TD errors). Look at the loss and at the scale of rewards, or return the absolute value."
            )

    def metrics(self) -> dict[str, float]:
        """Mean, largest and least p^α of the filled places."""
        count, least, largest = sumtree.extent(self.leaves)
        if not count:
            return {}
        return {"priority_mean": self.total / count, "priority_max": largest, "priority_min": least}

    def state(self, used: int | None = None) -> dict[str, Any]:
        """The first `used` places: give it if the others were never filled.

        Arrays are views: write or copy them before the next change.
        """
        return {"mass": self.leaves[:used], "stamp": self.stamp[:used], "largest": float(self._top[0])}

    def restore(self, state: dict[str, Any]) -> None:
        mass, stamp = np.asarray(state["mass"], np.float64), np.asarray(state["stamp"], np.int32)
        if len(mass) > self.places or mass.shape != stamp.shape:
            raise CheckpointError(
                f"the saved priorities are of {len(mass)} places and {len(stamp)} stamps, but this store has "
                f"{self.places} places. Resume with the same store.capacity, number of envs and workers."
            )
        self.leaves[: len(mass)], self.leaves[len(mass) :] = mass, 0.0
        self.stamp[: len(mass)], self.stamp[len(mass) :] = stamp, 0
        self._top[0] = state["largest"]
        sumtree.rebuild(self.tree)


def tree_size(places: int) -> int:
    """The power of two that holds so many leaves."""
    return 1 << max(0, places - 1).bit_length()


def priority_bytes(places: int) -> int:
    """Memory of the tree and the stamps."""
    return 16 * tree_size(places) + 4 * places
