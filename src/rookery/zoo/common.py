"""What presets of several tasks share."""

from __future__ import annotations

from typing import Any


def scaled_rewards(factor: float) -> list[dict[str, Any]]:
    """`env.train_wrappers` under which training sees rewards times `factor`; evaluations are told the true ones.

    Returns near 1 or 10 are learnt in time, returns of hundreds are not.
    """
    return [{"name": "reward_scale", "kwargs": {"factor": factor}}]


def falling(start: float) -> dict[str, Any]:
    """A rate that falls to 0 over the whole run: the last policy is the one that counts."""
    return {"kind": "linear", "start": start, "end": 0.0, "steps": None}
