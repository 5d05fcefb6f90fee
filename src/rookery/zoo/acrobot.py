"""Acrobot-v1."""

from __future__ import annotations

from typing import Any

from rookery.zoo.common import falling, scaled_rewards

ACROBOT_DQN: dict[str, Any] = {
    "algo": {
        "name": "dqn",
        "gamma": 0.99,
        "lr": {"kind": "linear", "start": 1e-3, "end": 1e-5, "steps": None},
        "n_step": 3,
        "target_every": 250,
        "epsilon": {"kind": "linear", "start": 1.0, "end": 0.05, "steps": 12_000},
    },
    "env": {"id": "Acrobot-v1", "num": 1},
    "model": {"hidden": [128, 128]},
    "store": {"capacity": 100_000, "batch_size": 128, "min_fill": 1_000, "updates_per_step": 1.0},
    "train": {"max_steps": 100_000},
}

ACROBOT_QRDQN: dict[str, Any] = ACROBOT_DQN | {
    "algo": ACROBOT_DQN["algo"] | {"name": "qrdqn", "quantiles": 16, "double": True, "dueling": True},
    "env": ACROBOT_DQN["env"] | {"train_wrappers": scaled_rewards(0.1)},
}

ACROBOT_PPO: dict[str, Any] = {
    "algo": {
        "name": "ppo",
        "gamma": 0.99,
        "lam": 0.95,
        "lr": falling(1e-3),
        "rollout": 256,
        "epochs": 8,
        "minibatches": 16,
    },
    "env": {"id": "Acrobot-v1", "num": 8},
    "model": {"normalise_obs": True},
    "train": {"max_steps": 393_216},  # 192 whole rollouts
}
