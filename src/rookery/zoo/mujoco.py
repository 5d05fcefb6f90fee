"""MuJoCo locomotion (`pip install rookery[mujoco]`) with the hyper-parameters that the field has settled on.

SAC: Haarnoja 2018 and what its successors kept. TD3: Fujimoto 2018. PPO: the tuned settings that are in common use for
the v4 and v5 tasks; returns are of the order of 1 by a fixed factor, where others divide rewards by a running
deviation. One million steps; episodes end after 1000.
"""

from __future__ import annotations

from typing import Any

from rookery.zoo.common import scaled_rewards

_RUN: dict[str, Any] = {
    "train": {"max_steps": 1_000_000},
    "eval": {"every_steps": 25_000},
    "checkpoint": {"every_steps": 50_000},
    "log": {"every_steps": 5_000},
}
_OFF_POLICY: dict[str, Any] = _RUN | {
    "model": {"hidden": [256, 256], "activation": "relu"},
    "store": {"capacity": 1_000_000, "batch_size": 256, "min_fill": 10_000, "updates_per_step": 1.0},
}


def _sac(env: str) -> dict[str, Any]:
    algo = {"name": "sac", "gamma": 0.99, "lr": 3e-4, "alpha_lr": 3e-4, "tau": 0.005, "warmup": 10_000}
    return _OFF_POLICY | {"algo": algo, "env": {"id": env, "num": 1}}


def _td3(env: str) -> dict[str, Any]:
    rates = {"lr": 3e-4, "policy_lr": 3e-4, "tau": 0.005, "policy_every": 2}
    noise = {"noise": 0.1, "smoothing": 0.2, "smoothing_clip": 0.5, "warmup": 25_000}
    store = _OFF_POLICY["store"] | {"min_fill": 25_000}
    return _OFF_POLICY | {
        "algo": {"name": "td3", "gamma": 0.99, **rates, **noise},
        "env": {"id": env, "num": 1},
        "store": store,
    }


def _ppo(env: str, **algo: Any) -> dict[str, Any]:
    usual = {"name": "ppo", "gamma": 0.99, "lam": 0.95, "clip": 0.2, "epochs": 10, "minibatches": 32, "rollout": 2_048}
    rate = {"lr": {"kind": "linear", "start": 3e-4, "end": 0.0, "steps": None}}
    return _RUN | {
        "algo": usual | rate | algo,
        "env": {"id": env, "num": 1, "train_wrappers": scaled_rewards(0.02)},  # Hopper at 700k: 3500, without 900
        "model": {"hidden": [64, 64], "activation": "tanh", "init": "orthogonal", "normalise_obs": True},
        "train": {"max_steps": 999_424},  # 488 whole rollouts
    }


HALFCHEETAH_SAC = _sac("HalfCheetah-v5")
HOPPER_SAC = _sac("Hopper-v5")
WALKER2D_SAC = _sac("Walker2d-v5")
ANT_SAC = _sac("Ant-v5")
HALFCHEETAH_TD3 = _td3("HalfCheetah-v5")
HOPPER_TD3 = _td3("Hopper-v5")
WALKER2D_TD3 = _td3("Walker2d-v5")
ANT_TD3 = _td3("Ant-v5")
HALFCHEETAH_PPO = _ppo("HalfCheetah-v5")
HOPPER_PPO = _ppo("Hopper-v5")
WALKER2D_PPO = _ppo("Walker2d-v5")
ANT_PPO = _ppo("Ant-v5")
