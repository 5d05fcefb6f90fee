"""Goal envs with sparse rewards, learnt with goals in hindsight (`store.hindsight`)."""

from __future__ import annotations

from typing import Any

BITFLIP8_DQN_HER: dict[str, Any] = {
    "algo": {
        "name": "dqn",
        "gamma": 0.98,
        "lr": {"kind": "linear", "start": 1e-3, "end": 1e-4, "steps": None},
        "target_every": 100,
        "epsilon": {"kind": "linear", "start": 1.0, "end": 0.1, "steps": 2_000},
    },
    "env": {"id": "rookery/BitFlip-v0", "num": 1},
    "model": {"hidden": [128, 128]},
    "store": {
        "capacity": 10_000,
        "batch_size": 128,
        "min_fill": 500,
        "updates_per_step": 1.0,
        "hindsight": {"strategy": "future", "k": 4},  # null at this budget: below 0.2 success
    },
    "train": {"max_steps": 4_000},
    "eval": {"every_steps": 500},
}
