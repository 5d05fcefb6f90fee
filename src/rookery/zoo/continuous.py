"""Continuous control without a simulator to install: Pendulum, MountainCar; and discrete SAC on CartPole. Budgets are those of the gates."""

from __future__ import annotations

from typing import Any

from rookery.zoo.rewards import small_rewards

_STORE: dict[str, Any] = {"capacity": 20_000, "batch_size": 128, "min_fill": 1_000, "updates_per_step": 1.0}
_PENDULUM: dict[str, Any] = {
    "env": {"id": "Pendulum-v1", "num": 1},
    "model": {"hidden": [128, 128]},
    "store": _STORE,
    "train": {"max_steps": 20_000},
    "eval": {"every_steps": 2_000},
}

PENDULUM_TD3: dict[str, Any] = _PENDULUM | {
    "algo": {"name": "td3", "gamma": 0.98, "lr": 1e-3, "policy_lr": 1e-3, "noise": 0.1, "warmup": 1_000},
}

PENDULUM_DDPG: dict[str, Any] = _PENDULUM | {
    "algo": {"name": "ddpg", "gamma": 0.98, "lr": 1e-3, "policy_lr": 1e-3, "noise": 0.1, "warmup": 1_000},
}

PENDULUM_TQC: dict[str, Any] = _PENDULUM | {
    "algo": {"name": "tqc", "gamma": 0.99, "lr": 1e-3, "alpha_lr": 1e-3, "critics": 2, "quantiles": 13, "drop": 1},
}

PENDULUM_REDQ: dict[str, Any] = _PENDULUM | {  # fewer steps, more updates of each
    "algo": {
        "name": "redq",
        "gamma": 0.99,
        "lr": 1e-3,
        "alpha_lr": 1e-3,
        "critics": 5,
        "policy_every": 3,
        "warmup": 500,
    },
    "model": {"hidden": [64, 64]},
    "store": _STORE | {"capacity": 5_000, "min_fill": 500, "updates_per_step": 3.0},
    "train": {"max_steps": 5_000},
    "eval": {"every_steps": 1_000},
}

PENDULUM_CROSSQ: dict[str, Any] = _PENDULUM | {
    "algo": {"name": "crossq", "gamma": 0.99, "lr": 1e-3, "alpha_lr": 1e-3, "policy_every": 2, "renorm_warmup": 5_000},
}

CARTPOLE_SAC_DISCRETE: dict[str, Any] = {
    "algo": {
        "name": "sac-discrete",
        "gamma": 0.99,
        "lr": {"kind": "linear", "start": 1e-3, "end": 1e-5, "steps": None},
        "alpha_lr": 1e-3,
        "tau": 0.01,
        "alpha": 0.02,
        "target_entropy": 0.2,
    },
    "env": {
        "id": "CartPole-v1",
        "num": 1,
        "train_wrappers": small_rewards(0.1),  # values near 10 come in time, 100 do not
    },
    "model": {"hidden": [128, 128]},
    "store": _STORE | {"capacity": 30_000},
    "train": {"max_steps": 30_000},
    "eval": {"every_steps": 5_000},
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
    "store": _STORE | {"capacity": 30_000, "batch_size": 256, "min_fill": 5_000, "updates_per_step": 0.5},
    "train": {"max_steps": 30_000},
    "eval": {"every_steps": 5_000},
}
