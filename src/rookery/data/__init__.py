"""Stores of experience: rollouts that are handed out once, replays that are drawn from, and what limits them."""

from rookery.data.config import AlarmConfig, PriorityConfig, ReplayConfig, RolloutConfig
from rookery.data.limiter import Limiter
from rookery.data.mixture import Mixture
from rookery.data.recorded.demonstrations import Demonstrations
from rookery.data.recorded.replay import Replay
from rookery.data.recorded.trace import Trace
from rookery.data.replay.priorities import Keys, Priorities
from rookery.data.replay.store import ReplayStore
from rookery.data.rollout import RolloutStore
from rookery.data.store import Store

__all__ = [
    "AlarmConfig",
    "Demonstrations",
    "Keys",
    "Limiter",
    "Mixture",
    "Priorities",
    "PriorityConfig",
    "Replay",
    "ReplayConfig",
    "ReplayStore",
    "RolloutConfig",
    "RolloutStore",
    "Store",
    "Trace",
]
