"""MountainCar-v0 and its continuous cousin: a hill that is hardly ever climbed by chance."""

from __future__ import annotations

from typing import Any

from rookery.zoo.common import falling

MOUNTAINCAR_PPO: dict[str, Any] = {
    "algo": {
        "name": "ppo",
        "gamma": 0.99,
        "lam": 0.98,
        "lr": falling(1e-3),
        "rollout": 128,
        "epochs": 4,
        "minibatches": 8,
        "entropy_bonus": 0.01,  # else it settles for one swing too many
        "curiosity": {"kind": "rnd"},  # the hill is hardly ever climbed by chance
    },
    "env": {"id": "MountainCar-v0", "num": 16},
    "model": {"normalise_obs": True},
    "train": {"max_steps": 999_424},  # 488 whole rollouts
}

MOUNTAINCAR_CONTINUOUS_SAC: dict[str, Any] = {
    "algo": {
        "name": "sac",
        "gamma": 0.99,
        "lr": 1e-3,
        "alpha_lr": 1e-3,
        "alpha": 0.1,
        "tau": 0.01,
        "warmup": 0,
        "noise_memory": 0.95,  # white noise hardly ever swings the car up the hill
    },
    "env": {"id": "MountainCarContinuous-v0", "num": 1},
    "model": {"hidden": [64, 64]},
    # learning begins when the goal has been seen: before, it would only learn to save energy
    "store": {"capacity": 30_000, "batch_size": 256, "min_fill": 5_000, "updates_per_step": 0.5},
    "train": {"max_steps": 30_000},
    "eval": {"every_steps": 5_000},
}
