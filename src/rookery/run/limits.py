"""Limits and goals: when a run is over. Counts are exact; a goal is a metric that reaches its value."""

from __future__ import annotations

from typing import Any

from rookery.run.config.sections import TrainConfig

GOAL = "reached train.stop"  # in the reason of a run that ended at a goal


def limit_reached(train: TrainConfig, steps: int, updates: int, episodes: int, seconds: float) -> str | None:
    """The first limit that is reached, as a sentence."""
    counts = {"max_steps": steps, "max_updates": updates, "max_episodes": episodes, "max_seconds": seconds}
    for name, count in counts.items():
        limit = getattr(train, name)
        if limit is not None and count >= limit:
            return f"train.{name}={limit:g} reached" if name == "max_seconds" else f"train.{name}={limit} reached"
    return None


def goal_reached(train: TrainConfig, metrics: dict[str, Any]) -> str | None:
    """The first goal of train.stop that these metrics reach, as a sentence."""
    for name, goal in train.stop.items():
        value = metrics.get(name)
        if isinstance(value, float | int) and value >= goal:
            return f"{name} = {value:.6g} {GOAL} {goal:g}"
    return None
