"""CartPole-v1, and CartPole without velocities, which asks for memory. Step budgets are those of the learning gates.

Asynchronous runs (IMPALA, APPO, Ape-X) have workers in processes that do not wait for the learner;
`pool=ray` runs the same on a cluster.
"""

from __future__ import annotations

from typing import Any

from rookery.zoo.common import falling, scaled_rewards

CARTPOLE_DQN: dict[str, Any] = {
    "algo": {
        "name": "dqn",
        "gamma": 0.98,
        "lr": {"kind": "linear", "start": 1e-3, "end": 1e-5, "steps": 40_000},  # late steps must not undo the rest
        "n_step": 3,
        "target_every": 200,
        "epsilon": {"kind": "linear", "start": 1.0, "end": 0.05, "steps": 8_000},
    },
    "env": {"id": "CartPole-v1", "num": 1},
    "model": {"hidden": [128, 128]},
    "store": {"capacity": 50_000, "batch_size": 128, "min_fill": 1_000, "updates_per_step": 1.0},
    "train": {"max_steps": 50_000},
    "eval": {"every_steps": 5_000},
}

# priorities make large steps: half the learning rate;
# corrected in full from the start (beta = 1), as CartPole is too short to anneal
CARTPOLE_DQN_PER: dict[str, Any] = CARTPOLE_DQN | {
    "algo": CARTPOLE_DQN["algo"] | {"lr": {"kind": "linear", "start": 5e-4, "end": 1e-5, "steps": 45_000}},
    "store": CARTPOLE_DQN["store"] | {"priority": {"alpha": 0.5, "beta": 1.0}},
}

CARTPOLE_PPO: dict[str, Any] = {
    "algo": {
        "name": "ppo",
        "gamma": 0.98,
        "lam": 0.8,
        "lr": {"kind": "linear", "start": 1e-3, "end": 0.0, "steps": None},
        "clip": {"kind": "linear", "start": 0.2, "end": 0.0, "steps": None},
        "rollout": 32,
        "epochs": 20,
        "minibatches": 1,
    },
    "env": {"id": "CartPole-v1", "num": 8},
    "train": {"max_steps": 98_304},  # 384 whole rollouts
}

# rewards of 1 and γ = 0.98: no discounted return exceeds 50
_SUPPORT = {"v_min": 0.0, "v_max": 50.0}

_OFF_POLICY: dict[str, Any] = {
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

CARTPOLE_C51: dict[str, Any] = _OFF_POLICY | {"algo": _Q | _SUPPORT | {"name": "c51"}}

CARTPOLE_RAINBOW: dict[str, Any] = _OFF_POLICY | {
    "algo": {key: value for key, value in _Q.items() if key != "epsilon"}  # the noise explores
    | _SUPPORT
    | {"name": "rainbow"},
    "store": _OFF_POLICY["store"] | {"priority": {"alpha": 0.5, "beta": 1.0}},
}

# the gap between actions is small beside the values:
# a head of its own for it, and a horizon that shows the edge from afar
_QUANTILES: dict[str, Any] = _Q | {
    "gamma": 0.99,
    "double": True,
    "dueling": True,
    "lr": {"kind": "linear", "start": 1e-3, "end": 1e-5, "steps": 65_000},
}

_BATCH_128 = _OFF_POLICY["store"] | {"batch_size": 128}

CARTPOLE_QRDQN: dict[str, Any] = _OFF_POLICY | {
    "algo": _QUANTILES | {"name": "qrdqn", "quantiles": 8},
    "store": _BATCH_128,
}

# small rewards: quantiles take steps of one size, whatever the values, and would not come near 100 in time
CARTPOLE_IQN: dict[str, Any] = _OFF_POLICY | {
    "env": _OFF_POLICY["env"] | {"train_wrappers": scaled_rewards(0.1)},
    "algo": _QUANTILES | {"name": "iqn", "samples": 8, "target_samples": 8, "acting_samples": 16, "cosines": 32},
    "model": {"hidden": [64, 64]},
    "store": _OFF_POLICY["store"] | {"updates_per_step": 1.0},
}

# the paper's rate of the fractions: at 1e-6 they leave the middle, and targets read there run away (one seed of three)
CARTPOLE_FQF: dict[str, Any] = CARTPOLE_IQN | {
    "algo": _QUANTILES | {"name": "fqf", "fractions": 8, "cosines": 32},
}

CARTPOLE_MDQN: dict[str, Any] = _OFF_POLICY | {
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
        "train_wrappers": scaled_rewards(0.1),  # values near 10 come in time, 100 do not
    },
    "model": {"hidden": [128, 128]},
    "store": {"capacity": 30_000, "batch_size": 128, "min_fill": 1_000, "updates_per_step": 1.0},
    "train": {"max_steps": 30_000},
    "eval": {"every_steps": 5_000},
}

CARTPOLE_A2C: dict[str, Any] = {
    "algo": {
        "name": "a2c",
        "gamma": 0.99,
        "lam": 0.95,
        "lr": falling(1e-3),
        "optimiser": "adam",
        "rollout": 8,
        "entropy_bonus": 0.0,
        "normalise_advantage": True,
    },
    "env": {
        "id": "CartPole-v1",
        "num": 8,
        # values near 1: with one update per rollout the critic would not come near 100 in time
        "train_wrappers": scaled_rewards(0.05),
    },
    "train": {"max_steps": 299_008},  # 4672 whole rollouts
}

CARTPOLE_REINFORCE: dict[str, Any] = {
    "algo": {"name": "reinforce", "gamma": 0.99, "lr": falling(5e-3), "value_lr": 5e-3, "rollout": 256},
    "env": {"id": "CartPole-v1", "num": 8},
    "train": {"max_steps": 299_008},  # 146 whole rollouts
}

CARTPOLE_TRPO: dict[str, Any] = {
    "algo": {
        "name": "trpo",
        "gamma": 0.99,
        "lam": 0.95,
        "lr": falling(3e-3),
        "rollout": 128,
        "epochs": 5,
        "minibatches": 4,
        "radius": falling(0.03),
    },
    "env": {"id": "CartPole-v1", "num": 8},
    "train": {"max_steps": 98_304},  # 96 whole rollouts
}

CARTPOLE_PPG: dict[str, Any] = {
    "algo": {
        "name": "ppg",
        "gamma": 0.98,
        "lam": 0.8,
        "lr": falling(1e-3),
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
    "env": {"id": "CartPole-v1", "num": 8, "train_wrappers": scaled_rewards(0.05)},
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

CARTPOLE_NOVEL_R2D2: dict[str, Any] = {
    "algo": {
        "name": "r2d2",
        "gamma": 0.98,
        "lr": {"kind": "linear", "start": 1e-3, "end": 1e-5, "steps": None},
        "n_step": 3,
        "sequence": 16,
        "overlap": 8,
        "burn_in": 8,
        "rescale": None,
        "target_every": 200,
        "epsilon": {"kind": "linear", "start": 1.0, "end": 0.05, "steps": 15_000},
    },
    "env": {"id": "rookery/CartPoleNoVelocity-v0", "num": 4},
    "model": {"hidden": [64], "core": {"kind": "gru", "size": 64}},
    "store": {"capacity": 100_000, "batch_size": 32, "min_fill": 2_000, "updates_per_step": 0.25, "priority": None},
    "train": {"max_steps": 100_000},
}

CARTPOLE_NOVEL_DRQN: dict[str, Any] = CARTPOLE_NOVEL_R2D2 | {
    "algo": CARTPOLE_NOVEL_R2D2["algo"] | {"stored_state": False, "burn_in": 0, "gamma": 0.99, "dueling": True},
    "env": CARTPOLE_NOVEL_R2D2["env"] | {"train_wrappers": scaled_rewards(0.1)},
}

CARTPOLE_NOVEL_PPO_LSTM: dict[str, Any] = {
    "algo": {
        "name": "ppo",
        "gamma": 0.98,
        "lam": 0.8,
        "lr": {"kind": "linear", "start": 1e-3, "end": 0.0, "steps": None},
        "clip": {"kind": "linear", "start": 0.2, "end": 0.0, "steps": None},
        "rollout": 32,
        "epochs": 16,
        "minibatches": 1,
    },
    "env": {
        "id": "rookery/CartPoleNoVelocity-v0",
        "num": 8,
        # values near 1, which the bounded outputs of a memory reach quickly
        "train_wrappers": scaled_rewards(0.05),
    },
    "model": {"hidden": [64], "core": {"kind": "lstm", "size": 64}, "normalise_obs": True},
    "train": {"max_steps": 98_304},  # 384 whole rollouts
}
