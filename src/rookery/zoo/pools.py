"""Asynchronous runs: workers in processes that do not wait for the learner. `pool=ray` runs the same on a cluster."""

from __future__ import annotations

from typing import Any

from rookery.zoo.classic import CARTPOLE_DQN
from rookery.zoo.rewards import small_rewards

_TWO = {"kind": "process", "workers": 2, "mode": "async"}

# small rewards: with one update per rollout the critic would not come near 100 in time
CARTPOLE_IMPALA: dict[str, Any] = {
    "algo": {
        "name": "impala",
        "lr": {"kind": "linear", "start": 2e-3, "end": 0.0, "steps": None},
        "optimiser": "adam",
        "rollout": 16,  # of 32 with 3e-3, half as many and larger updates, one seed in ten ends with a single action
        "entropy_bonus": 0.001,
        "max_grad_norm": 0.5,
    },
    "env": {"id": "CartPole-v1", "num": 8, "train_wrappers": small_rewards(0.05)},
    "pool": _TWO | {"max_lag": 20},
    "train": {"max_steps": 299_008},
}

CARTPOLE_APPO: dict[str, Any] = {
    "algo": {
        "name": "appo",
        "gamma": 0.98,
        "lr": {"kind": "linear", "start": 1e-3, "end": 0.0, "steps": None},
        "rollout": 32,
        "epochs": 10,
        "minibatches": 1,
    },
    "env": {"id": "CartPole-v1", "num": 8},
    "pool": _TWO | {"max_lag": 100, "ahead": 1},  # nothing is dropped
    "train": {"max_steps": 200_704},
}

CARTPOLE_APEX: dict[str, Any] = CARTPOLE_DQN | {
    "algo": CARTPOLE_DQN["algo"]
    | {
        "lr": {"kind": "linear", "start": 1e-3, "end": 1e-5, "steps": 110_000},
        "epsilon": 0.4,
        "epsilon_spread": 5.0,  # eight columns: some are nearly greedy and see what long episodes are like
        "rollout": 16,
    },
    "env": {"id": "CartPole-v1", "num": 4},
    "pool": _TWO | {"max_lag": 2_000, "ahead": 4},  # the ratio of updates and steps is kept
    "store": CARTPOLE_DQN["store"]
    | {"priority": {"alpha": 0.5, "beta": 1.0, "initial": "actor"}, "updates_per_step": 0.5},
    "train": {"max_steps": 150_000},
    "eval": {"every_steps": 15_000},
}
