"""Trace: a recording of steps without bound, as a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rookery.core.errors import BatchError, UsageError
from rookery.core.tree import Tree, tree_map
from rookery.data.recorded.replay import EXTRAS, Replay


class Trace:
    """Every step since the beginning, as a list: for recordings. It cannot be sampled."""

    def __init__(self) -> None:
        self._steps: list[dict[str, Tree]] = []

    def add(
        self, *, obs: Tree, action: Tree, reward: Any, terminated: Any, truncated: Any, next_obs: Tree, **extras: Tree
    ) -> None:
        """Append one step; arrays are copied. extras: info, policy."""
        unknown = set(extras) - set(EXTRAS)
        if unknown:
            raise BatchError(
                f"unknown field(s) {sorted(unknown)}: "
                "a step has obs, action, reward, terminated, truncated, next_obs, info, policy."
            )
        step = {
            "obs": obs,
            "action": action,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "next_obs": next_obs,
            **extras,
        }
        self._steps.append(tree_map(np.array, {name: value for name, value in step.items() if value is not None}))

    def update(self, other: Replay | Trace) -> None:
        """Append the steps of another recording, in time order."""
        if isinstance(other, Replay) and other.columns > 1:
            raise UsageError("a Trace records one column: append a Replay with columns=1.")
        for i in range(len(other)):
            self.add(**other[i])

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[dict[str, Tree]]:
        return iter(self._steps)

    def __getitem__(self, at: Any) -> Any:
        return self._steps[at]

    def sample(self, n: int) -> None:
        raise UsageError(
            "a Trace grows without bound and cannot be sampled. "
            f"Copy it into a Replay: replay = Replay({max(1, len(self))}); replay.update(trace)."
        )
