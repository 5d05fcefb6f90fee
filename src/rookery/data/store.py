"""What the loop asks of a store: it decides when learning may happen and from what."""

from __future__ import annotations

from typing import Any, Protocol

from rookery.core.chunk import Chunk
from rookery.core.tree import Tree


class Store(Protocol):
    """add · ready · sample · feedback, so that on-policy, off-policy and offline learning share one loop."""

    @property
    def size(self) -> int:
        """Valid steps stored now."""

    def add(self, chunk: Chunk) -> None:
        """Take the rows of one collector; the chunk's arrays may be reused by the caller afterwards."""

    def ready(self) -> bool:
        """May `sample` be called for one more update?"""

    def sample(self) -> tuple[dict[str, Tree], Any]:
        """(batch of torch tensors, keys for `feedback`); the tensors are valid until the next call of `sample` or `add`."""

    def feedback(self, keys: Any, outputs: dict[str, Any]) -> None:
        """What the update answered about the sampled rows, e.g. priorities."""

    def metrics(self) -> dict[str, float]:
        """Numbers for a report."""

    def counts(self) -> dict[str, int]:
        """Numbers that only grow; their growth per second is reported under `time/`."""

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays and JSON values. Large arrays are views: write or copy them before the next `add`."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state` was taken."""
