"""What the loop asks of a store: it decides when learning may happen and from what."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from rookery.core.chunk import Chunk
from rookery.core.tree import Tree


class Store(ABC):
    """add · ready · sample · feedback, so that on-policy, off-policy and offline learning share one loop."""

    once: ClassVar[bool] = False  # every row is handed out once, in whole rollouts of the newest weights

    @property
    @abstractmethod
    def size(self) -> int:
        """Valid steps stored now."""

    @property
    def saved_bytes(self) -> int:
        """What it takes in a checkpoint when it is full; 0: not worth mentioning."""
        return 0

    @property
    def owed(self) -> float:
        """Steps stored whose updates were granted and not done yet."""
        return 0.0

    def clock(self, steps: int) -> None:
        """How many env steps the run has done, for what is annealed over it. Most stores anneal nothing."""
        return None

    @abstractmethod
    def add(self, chunk: Chunk) -> None:
        """Take the rows of one collector; the chunk's arrays may be reused by the caller afterwards."""

    @abstractmethod
    def ready(self) -> bool:
        """May `sample` be called for one more update?"""

    @abstractmethod
    def sample(self) -> tuple[dict[str, Tree], Any]:
        """(batch of torch tensors, keys for `feedback`);
        the tensors are valid until the next call of `sample` or `add`.
        """

    @abstractmethod
    def feedback(self, keys: Any, outputs: dict[str, Any]) -> None:
        """What the update answered about the sampled rows, e.g. priorities."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Numbers for a report."""

    def counts(self) -> dict[str, int]:
        """Numbers that only grow; their growth per second is reported under `time/`."""
        return {}

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Nested dict of arrays and JSON values. Large arrays are views: write or copy them before the next `add`."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state` was taken."""
