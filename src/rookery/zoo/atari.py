"""Atari games from pixels: grey 84 × 84 screens, four stacked, as in `rookery.envs.tasks.atari`.

Steps are the agent's, of four frames each. Training sees the sign of rewards and one life per episode;
evaluation plays whole games with raw rewards.
"""

from __future__ import annotations

from typing import Any

_SIGN = {"name": "reward_clip", "kwargs": {"sign": True}}
_NATURE = {"convs": [[32, 8, 4], [64, 4, 2], [64, 3, 1]], "hidden": [512], "activation": "relu"}  # Mnih 2015
_SMALL = {"convs": [[16, 8, 4], [32, 4, 2]], "hidden": [256], "activation": "relu"}  # Mnih 2016: a third of the cost
_GAME: dict[str, Any] = {"stack": 4, "wrappers": ["atari"], "train_wrappers": ["life_loss", _SIGN]}

PONG_PPO: dict[str, Any] = {
    "algo": {
        "name": "ppo",
        "gamma": 0.99,
        "lam": 0.95,
        "lr": {"kind": "linear", "start": 5e-4, "end": 0.0, "steps": None},
        "clip": 0.1,
        "entropy_bonus": 0.01,
        "rollout": 128,
        "epochs": 4,
        "minibatches": 4,
        "shared": True,
    },
    "env": {"id": "ALE/Pong-v5", "num": 8} | _GAME,
    "model": _SMALL | {"init": "orthogonal"},  # enough for Pong
    "train": {"max_steps": 1_048_576},  # 1024 whole rollouts
    "eval": {"every_steps": 65_536, "episodes": 5},
    "checkpoint": {"every_steps": 32_768},
    "log": {"every_steps": 8_192},
    "learning": {"mode": "eager"},
}

_DQN: dict[str, Any] = {
    "algo": {
        "name": "dqn",
        "gamma": 0.99,
        "lr": 1e-4,
        "target_every": 1_000,
        "epsilon": {"kind": "linear", "start": 1.0, "end": 0.01, "steps": 250_000},
    },
    "env": {"id": "ALE/Breakout-v5", "num": 4} | _GAME,  # one update per step of the four
    "model": _NATURE,
    "store": {"capacity": 1_000_000, "batch_size": 32, "min_fill": 50_000, "updates_per_step": 0.25},
    "train": {"max_steps": 10_000_000},
    "eval": {"every_steps": 250_000, "episodes": 5},
    "checkpoint": {"every_steps": 100_000},
    "log": {"every_steps": 10_000},
    "learning": {"mode": "eager"},
}


def _of(game: str, preset: dict[str, Any]) -> dict[str, Any]:
    return preset | {"env": preset["env"] | {"id": f"ALE/{game}-v5"}}


BREAKOUT_DQN = _DQN
QBERT_DQN, SPACEINVADERS_DQN = _of("Qbert", _DQN), _of("SpaceInvaders", _DQN)

_PPO: dict[str, Any] = PONG_PPO | {
    "algo": PONG_PPO["algo"] | {"lr": {"kind": "linear", "start": 2.5e-4, "end": 0.0, "steps": None}},
    "model": _NATURE | {"init": "orthogonal"},
    "train": {"max_steps": 9_999_360},  # 9765 whole rollouts
    "eval": {"every_steps": 262_144, "episodes": 5},
    "checkpoint": {"every_steps": 131_072},
}
BREAKOUT_PPO, QBERT_PPO, SPACEINVADERS_PPO = (_of(game, _PPO) for game in ("Breakout", "Qbert", "SpaceInvaders"))

PONG_DQN: dict[str, Any] = _DQN | {  # an easy game: less exploration, rewards carried over three steps
    "algo": _DQN["algo"] | {"n_step": 3, "epsilon": {"kind": "linear", "start": 1.0, "end": 0.02, "steps": 100_000}},
    "env": _DQN["env"] | {"id": "ALE/Pong-v5"},
    "store": _DQN["store"] | {"capacity": 200_000, "min_fill": 10_000},
    "train": {"max_steps": 1_000_000},
    "eval": _DQN["eval"] | {"every_steps": 100_000},
}
