"""Stores of experience: rollouts that are handed out once, replays that are drawn from, and what limits them."""

from rookery.data.config import AlarmConfig, PriorityConfig, ReplayConfig, RolloutConfig
from rookery.data.demonstrations import Demonstrations
from rookery.data.experience import Replay
from rookery.data.limiter import Limiter
from rookery.data.mixture import Mixture
from rookery.data.priority import Keys, Priorities
from rookery.data.replay import ReplayStore
from rookery.data.rollout import RolloutStore
from rookery.data.store import Store
from rookery.data.trace import Trace

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
