"""A chain of places whose end is found by curiosity only."""

from __future__ import annotations

from typing import Any

# Advantages as they are: to deviation 1, those of a critic that has seen no reward are noise, which PPO follows as if
# it were news (without any bonus one seed of five came to the end so).
CHAIN20_PPO_RND: dict[str, Any] = {
    "algo": {
        "name": "ppo",
        "gamma": 0.99,
        "lr": 1e-3,
        "rollout": 128,
        "epochs": 4,
        "minibatches": 4,
        "entropy_bonus": 0.01,
        "normalise_advantage": False,
        "curiosity": {"kind": "rnd", "weight": 20.0},  # null: the end is not found
    },
    "env": {"id": "rookery/Chain-v0", "num": 8},
    "train": {"max_steps": 65_536},  # 64 whole rollouts
}
