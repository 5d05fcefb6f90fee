"""Stores of experience: rollouts that are handed out once, replays that are drawn from, and what limits them.

The names below are imported when first used: a config needs `kinds` and nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_NAMES = {  # name → module that defines it
    "AlarmConfig": "config",
    "Demonstrations": "recorded.demonstrations",
    "Keys": "replay.priorities",
    "Limiter": "limiter",
    "Mixture": "mixture",
    "Priorities": "replay.priorities",
    "PriorityConfig": "config",
    "Replay": "recorded.replay",
    "ReplayConfig": "config",
    "ReplayStore": "replay.store",
    "RolloutConfig": "config",
    "RolloutStore": "rollout",
    "Store": "store",
    "Trace": "recorded.trace",
}

__all__ = [*_NAMES]

if TYPE_CHECKING:
    from rookery.data.config import AlarmConfig as AlarmConfig
    from rookery.data.config import PriorityConfig as PriorityConfig
    from rookery.data.config import ReplayConfig as ReplayConfig
    from rookery.data.config import RolloutConfig as RolloutConfig
    from rookery.data.limiter import Limiter as Limiter
    from rookery.data.mixture import Mixture as Mixture
    from rookery.data.recorded.demonstrations import Demonstrations as Demonstrations
    from rookery.data.recorded.replay import Replay as Replay
    from rookery.data.recorded.trace import Trace as Trace
    from rookery.data.replay.priorities import Keys as Keys
    from rookery.data.replay.priorities import Priorities as Priorities
    from rookery.data.replay.store import ReplayStore as ReplayStore
    from rookery.data.rollout import RolloutStore as RolloutStore
    from rookery.data.store import Store as Store


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'rookery.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rookery.data.{_NAMES[name]}"), name)
