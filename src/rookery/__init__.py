"""Rookery: deep reinforcement learning that is correct by construction, exactly resumable, and fast.

The names below are the public API.
They are imported when first used, so `import rookery` itself is quick and without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rookery.core.system.cpus import bound_libraries
from rookery.core.system.imports import lasting

__version__ = "0.2.0"

_PUBLIC = {  # name → module that defines it
    "Actor": "rookery.acting.actor",
    "Algorithm": "rookery.algos.base",
    "Batch": "rookery.core.batch.batch",
    "Callback": "rookery.run.callbacks.base",
    "CheckpointError": "rookery.core.errors",
    "Collector": "rookery.run.collect.collector",
    "Config": "rookery.run.config.config",
    "ConfigError": "rookery.core.errors",
    "Curriculum": "rookery.run.callbacks.curriculum",
    "Diverged": "rookery.core.errors",
    "EnvError": "rookery.core.errors",
    "Experiment": "rookery.run.experiment.experiment",
    "Learner": "rookery.learning.learner",
    "Message": "rookery.acting.actor",
    "Policy": "rookery.acting.policy",
    "Replay": "rookery.data.recorded.replay",
    "ReplayStore": "rookery.data.replay.store",
    "RolloutStore": "rookery.data.rollout",
    "RookeryError": "rookery.core.errors",
    "Schedule": "rookery.core.schedule",
    "Streams": "rookery.core.rng",
    "Trainer": "rookery.run.trainer",
    "UpdateBatch": "rookery.learning.update_types",
    "UpdateState": "rookery.learning.update_types",
    "UsageError": "rookery.core.errors",
    "check_env": "rookery.envs.check.checker",
    "collate": "rookery.core.batch.collate",
    "decollate": "rookery.core.batch.collate",
    "env_factory": "rookery.core.registry",
    "evaluate_run": "rookery.run.evaluate",
    "json_schema": "rookery.run.config.resolve",
    "load_config": "rookery.run.config.resolve",
    "load_policy": "rookery.run.load",
    "lookup": "rookery.core.registry",
    "names": "rookery.core.registry",
    "register": "rookery.core.registry",
    "time_collate": "rookery.core.batch.collate",
}

__all__ = ["__version__", *_PUBLIC]

bound_libraries()  # before numpy and torch are imported, which start as many threads as the host has CPUs

if TYPE_CHECKING:
    from rookery.acting.actor import Actor as Actor
    from rookery.acting.actor import Message as Message
    from rookery.acting.policy import Policy as Policy
    from rookery.algos.base import Algorithm as Algorithm
    from rookery.core.batch.batch import Batch as Batch
    from rookery.core.batch.collate import collate as collate
    from rookery.core.batch.collate import decollate as decollate
    from rookery.core.batch.collate import time_collate as time_collate
    from rookery.core.errors import CheckpointError as CheckpointError
    from rookery.core.errors import ConfigError as ConfigError
    from rookery.core.errors import Diverged as Diverged
    from rookery.core.errors import EnvError as EnvError
    from rookery.core.errors import RookeryError as RookeryError
    from rookery.core.errors import UsageError as UsageError
    from rookery.core.registry import env_factory as env_factory
    from rookery.core.registry import lookup as lookup
    from rookery.core.registry import names as names
    from rookery.core.registry import register as register
    from rookery.core.rng import Streams as Streams
    from rookery.core.schedule import Schedule as Schedule
    from rookery.data.recorded.replay import Replay as Replay
    from rookery.data.replay.store import ReplayStore as ReplayStore
    from rookery.data.rollout import RolloutStore as RolloutStore
    from rookery.envs.check.checker import check_env as check_env
    from rookery.learning.learner import Learner as Learner
    from rookery.learning.update_types import UpdateBatch as UpdateBatch
    from rookery.learning.update_types import UpdateState as UpdateState
    from rookery.run.callbacks.base import Callback as Callback
    from rookery.run.callbacks.curriculum import Curriculum as Curriculum
    from rookery.run.collect.collector import Collector as Collector
    from rookery.run.config.config import Config as Config
    from rookery.run.config.resolve import json_schema as json_schema
    from rookery.run.config.resolve import load_config as load_config
    from rookery.run.evaluate import evaluate_run as evaluate_run
    from rookery.run.experiment.experiment import Experiment as Experiment
    from rookery.run.load import load_policy as load_policy
    from rookery.run.trainer import Trainer as Trainer


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rookery' has no attribute {name!r}")
    with lasting():
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
