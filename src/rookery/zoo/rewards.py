"""Rewards as networks like them: returns near 1 or 10 are learnt in time, returns of hundreds are not."""

from __future__ import annotations

from typing import Any


def small_rewards(factor: float) -> list[dict[str, Any]]:
    """`env.train_wrappers` under which training sees rewards times `factor`; evaluations are told the true ones."""
    return [{"name": "reward_scale", "kwargs": {"factor": factor}}]
