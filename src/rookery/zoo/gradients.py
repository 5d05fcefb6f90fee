"""Policy gradients: classic control with A2C, REINFORCE, TRPO, PPG and PPO, and a chain that is only found by curiosity.

Step budgets are those of the learning gates, in whole rollouts.
"""

from __future__ import annotations

from typing import Any

from rookery.zoo.rewards import small_rewards


def _falling(start: float) -> dict[str, Any]:
    """A rate that falls to 0 over the whole run: the last policy is the one that counts."""
    return {"kind": "linear", "start": start, "end": 0.0, "steps": None}


CARTPOLE_A2C: dict[str, Any] = {
    "algo": {
        "name": "a2c",
        "gamma": 0.99,
        "lam": 0.95,
        "lr": _falling(1e-3),
        "optimiser": "adam",
        "rollout": 8,
        "entropy_bonus": 0.0,
        "normalise_advantage": True,
    },
    "env": {
        "id": "CartPole-v1",
        "num": 8,
        # values near 1: with one update per rollout the critic would not come near 100 in time
        "train_wrappers": small_rewards(0.05),
    },
    "train": {"max_steps": 299_008},  # 4672 whole rollouts
}

CARTPOLE_REINFORCE: dict[str, Any] = {
    "algo": {"name": "reinforce", "gamma": 0.99, "lr": _falling(5e-3), "value_lr": 5e-3, "rollout": 256},
    "env": {"id": "CartPole-v1", "num": 8},
    "train": {"max_steps": 299_008},  # 146 whole rollouts
}

CARTPOLE_TRPO: dict[str, Any] = {
    "algo": {
        "name": "trpo",
        "gamma": 0.99,
        "lam": 0.95,
        "lr": _falling(3e-3),
        "rollout": 128,
        "epochs": 5,
        "minibatches": 4,
        "radius": _falling(0.03),
    },
    "env": {"id": "CartPole-v1", "num": 8},
    "train": {"max_steps": 98_304},  # 96 whole rollouts
}

CARTPOLE_PPG: dict[str, Any] = {
    "algo": {
        "name": "ppg",
        "gamma": 0.98,
        "lam": 0.8,
        "lr": _falling(1e-3),
        "rollout": 32,
        "epochs": 10,
        "minibatches": 1,
        "entropy_bonus": 0.0,
        "phase": 16,
        "auxiliary_epochs": 3,
        "auxiliary_minibatches": 8,
    },
    "env": {"id": "CartPole-v1", "num": 8},
    "train": {"max_steps": 98_304},  # 384 whole rollouts
}

ACROBOT_PPO: dict[str, Any] = {
    "algo": {
        "name": "ppo",
        "gamma": 0.99,
        "lam": 0.95,
        "lr": _falling(1e-3),
        "rollout": 256,
        "epochs": 8,
        "minibatches": 16,
    },
    "env": {"id": "Acrobot-v1", "num": 8},
    "model": {"normalise_obs": True},
    "train": {"max_steps": 393_216},  # 192 whole rollouts
}

PENDULUM_A2C: dict[str, Any] = {
    "algo": {
        "name": "a2c",
        "gamma": 0.95,
        "lam": 0.9,
        "lr": _falling(2e-3),
        "optimiser": "adam",
        "rollout": 8,
        "entropy_bonus": 0.0,
        "normalise_advantage": True,
    },
    "env": {
        "id": "Pendulum-v1",
        "num": 32,  # with 8, what is learnt from pendulums that stand undoes the swing in some seeds
        "train_wrappers": small_rewards(0.1),  # values near 1
    },
    "train": {"max_steps": 998_400},  # 3900 whole rollouts
}

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

MOUNTAINCAR_PPO: dict[str, Any] = {
    "algo": {
        "name": "ppo",
        "gamma": 0.99,
        "lam": 0.98,
        "lr": _falling(1e-3),
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

# Advantages as they are: to deviation 1, those of a critic that has seen no reward are noise, which PPO follows as if it were news
# (without any bonus one seed of five came to the end so).
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
