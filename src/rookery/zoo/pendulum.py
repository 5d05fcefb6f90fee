"""Pendulum-v1. Step budgets are those of the learning gates."""

from __future__ import annotations

from typing import Any

from rookery.zoo.common import falling, scaled_rewards

_STORE: dict[str, Any] = {"capacity": 20_000, "batch_size": 128, "min_fill": 1_000, "updates_per_step": 1.0}

_PENDULUM: dict[str, Any] = {
    "env": {"id": "Pendulum-v1", "num": 1},
    "model": {"hidden": [128, 128]},
    "store": _STORE,
    "train": {"max_steps": 20_000},
    "eval": {"every_steps": 2_000},
}

PENDULUM_SAC: dict[str, Any] = {
    "algo": {"name": "sac", "gamma": 0.99, "lr": 1e-3, "alpha_lr": 1e-3, "tau": 0.005, "warmup": 1_000},
    "env": {"id": "Pendulum-v1", "num": 1},
    "model": {"hidden": [128, 128]},
    "store": {"capacity": 20_000, "batch_size": 128, "min_fill": 1_000, "updates_per_step": 1.0},
    "train": {"max_steps": 20_000},
    "eval": {"every_steps": 2_000},
}

PENDULUM_PPO: dict[str, Any] = {
    "algo": {
        "name": "ppo",
        "gamma": 0.95,
        "lam": 0.95,
        "lr": {"kind": "linear", "start": 1e-3, "end": 0.0, "steps": None},
        "rollout": 512,
        "epochs": 10,
        "minibatches": 32,
    },
    "env": {"id": "Pendulum-v1", "num": 4},
    "train": {"max_steps": 198_656},  # 97 whole rollouts
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

PENDULUM_A2C: dict[str, Any] = {
    "algo": {
        "name": "a2c",
        "gamma": 0.95,
        "lam": 0.9,
        "lr": falling(2e-3),
        "optimiser": "adam",
        "rollout": 8,
        "entropy_bonus": 0.0,
        "normalise_advantage": True,
    },
    "env": {
        "id": "Pendulum-v1",
        "num": 32,  # with 8, what is learnt from pendulums that stand undoes the swing in some seeds
        "train_wrappers": scaled_rewards(0.1),  # values near 1
    },
    "train": {"max_steps": 998_400},  # 3900 whole rollouts
}
