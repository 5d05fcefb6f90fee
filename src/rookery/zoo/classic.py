"""Classic control: CartPole, Acrobot, Pendulum. Step budgets are those of the learning gates."""

from __future__ import annotations

from typing import Any

from rookery.zoo.rewards import small_rewards

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

# priorities make large steps: half the learning rate; corrected in full from the start (beta = 1), as CartPole is too short to anneal
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
        "train_wrappers": small_rewards(0.05),
    },
    "model": {"hidden": [64], "core": {"kind": "lstm", "size": 64}, "normalise_obs": True},
    "train": {"max_steps": 98_304},  # 384 whole rollouts
}
