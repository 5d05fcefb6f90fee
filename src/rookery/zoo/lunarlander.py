"""LunarLander-v3 (`pip install rookery[box2d]`)."""

from __future__ import annotations

from typing import Any

LUNARLANDER_PPO: dict[str, Any] = {
    "algo": {
        "name": "ppo",
        "gamma": 0.999,
        "lam": 0.98,
        "lr": 3e-4,
        "rollout": 1_024,
        "epochs": 4,
        "minibatches": 256,
        "entropy_bonus": 0.01,
    },
    "env": {"id": "LunarLander-v3", "num": 16},  # needs the extra box2d
    "train": {"max_steps": 999_424},  # 61 whole rollouts
}
