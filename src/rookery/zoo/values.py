"""Cousins of DQN on classic control. Step budgets are those of the learning gates."""

from __future__ import annotations

from typing import Any

from rookery.zoo.classic import ACROBOT_DQN, CARTPOLE_NOVEL_R2D2
from rookery.zoo.rewards import small_rewards

# rewards of 1 and γ = 0.98: no discounted return exceeds 50
_SUPPORT = {"v_min": 0.0, "v_max": 50.0}
_CARTPOLE: dict[str, Any] = {
    "env": {"id": "CartPole-v1", "num": 1},
    "model": {"hidden": [128, 128]},
    "store": {"capacity": 50_000, "batch_size": 64, "min_fill": 1_000, "updates_per_step": 0.5},
    "train": {"max_steps": 75_000},
    "eval": {"every_steps": 5_000},
}
_Q: dict[str, Any] = {
    "gamma": 0.98,
    "lr": {"kind": "linear", "start": 1e-3, "end": 1e-5, "steps": 60_000},  # late steps must not undo the rest
    "n_step": 3,
    "target_every": 200,
    "epsilon": {"kind": "linear", "start": 1.0, "end": 0.05, "steps": 8_000},
}

CARTPOLE_C51: dict[str, Any] = _CARTPOLE | {"algo": _Q | _SUPPORT | {"name": "c51"}}

CARTPOLE_RAINBOW: dict[str, Any] = _CARTPOLE | {
    "algo": {key: value for key, value in _Q.items() if key != "epsilon"}  # the noise explores
    | _SUPPORT
    | {"name": "rainbow"},
    "store": _CARTPOLE["store"] | {"priority": {"alpha": 0.5, "beta": 1.0}},
}

# the gap between actions is small beside the values: a head of its own for it, and a horizon that shows the edge from afar
_QUANTILES: dict[str, Any] = _Q | {
    "gamma": 0.99,
    "double": True,
    "dueling": True,
    "lr": {"kind": "linear", "start": 1e-3, "end": 1e-5, "steps": 65_000},
}
_BATCH_128 = _CARTPOLE["store"] | {"batch_size": 128}

CARTPOLE_QRDQN: dict[str, Any] = _CARTPOLE | {
    "algo": _QUANTILES | {"name": "qrdqn", "quantiles": 8},
    "store": _BATCH_128,
}

# small rewards: quantiles take steps of one size, whatever the values, and would not come near 100 in time
CARTPOLE_IQN: dict[str, Any] = _CARTPOLE | {
    "env": _CARTPOLE["env"] | {"train_wrappers": small_rewards(0.1)},
    "algo": _QUANTILES | {"name": "iqn", "samples": 8, "target_samples": 8, "acting_samples": 16, "cosines": 32},
    "model": {"hidden": [64, 64]},
    "store": _CARTPOLE["store"] | {"updates_per_step": 1.0},
}

# the paper's rate of the fractions: at 1e-6 they leave the middle, and targets read there run away (one seed of three)
CARTPOLE_FQF: dict[str, Any] = CARTPOLE_IQN | {
    "algo": _QUANTILES | {"name": "fqf", "fractions": 8, "cosines": 32},
}

CARTPOLE_MDQN: dict[str, Any] = _CARTPOLE | {
    "algo": _Q
    | {
        "name": "mdqn",
        "gamma": 0.99,
        "dueling": True,
        "lr": {"kind": "linear", "start": 1e-3, "end": 1e-5, "steps": 40_000},
    },
    "store": _BATCH_128 | {"updates_per_step": 1.0},
    "train": {"max_steps": 50_000},
}

CARTPOLE_PQN: dict[str, Any] = {
    "algo": {
        "name": "pqn",
        "gamma": 0.98,
        "lam": 0.95,
        "lr": {"kind": "linear", "start": 5e-4, "end": 0.0, "steps": None},
        "rollout": 32,
        "epochs": 4,
        "minibatches": 8,
        # much exploration to the end: without replay, what is no longer seen is forgotten
        "epsilon": {"kind": "linear", "start": 1.0, "end": 0.2, "steps": 30_000},
    },
    "env": {"id": "CartPole-v1", "num": 32},
    "model": {"hidden": [128, 128]},
    "train": {"max_steps": 149_504},  # 146 whole rollouts
    "eval": {"every_steps": 20_000},
}

CARTPOLE_NOVEL_DRQN: dict[str, Any] = CARTPOLE_NOVEL_R2D2 | {
    "algo": CARTPOLE_NOVEL_R2D2["algo"] | {"stored_state": False, "burn_in": 0, "gamma": 0.99, "dueling": True},
    "env": CARTPOLE_NOVEL_R2D2["env"] | {"train_wrappers": small_rewards(0.1)},
}

ACROBOT_QRDQN: dict[str, Any] = ACROBOT_DQN | {
    "algo": ACROBOT_DQN["algo"] | {"name": "qrdqn", "quantiles": 16, "double": True, "dueling": True},
    "env": ACROBOT_DQN["env"] | {"train_wrappers": small_rewards(0.1)},
}
