"""Envs and an encoder that behave like nobody's should, for bench/attack.py:
`--env faults.hostile_envs:Odd env.kwargs={kind: huge}`."""

from __future__ import annotations

import os
import sys
import time

import numpy as np
import torch
from torch import nn

from faults.fault_envs import Walk

REWARDS = {
    "huge": lambda: 10**400,
    "gradient": lambda: torch.ones((), requires_grad=True),
    "complex": lambda: 1 + 2j,
    "masked": lambda: np.ma.masked,
    "text": lambda: "1.0",
    "none": lambda: None,
}
FLAGS = {"flag text": "False", "flag nan": float("nan"), "flag list": [False], "flag none": None}
CALLS = {"exit": lambda: sys.exit(0), "quit": lambda: os._exit(0), "raise": lambda: 1 / 0}


class Odd(Walk):
    """After 40 steps of its life: a reward, a flag or a call that is none; or an odd end."""

    def __init__(self, kind: str, at: int = 40):
        super().__init__()
        self.kind, self.at = kind, at

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.lived > self.at:
            CALLS.get(self.kind, lambda: None)()
            reward = REWARDS.get(self.kind, lambda: reward)()
            terminated = FLAGS.get(self.kind, terminated)
        return obs, reward, terminated, truncated, info

    def close(self):
        if self.kind == "close raises":
            raise RuntimeError("it does not want to")
        if self.kind == "close hangs":
            time.sleep(10_000)


class NoLimit(Walk):
    """Episodes never end."""

    def __init__(self):
        super().__init__(length=10**18)


class Breaks(nn.Module):
    """An encoder that raises in its 30th call."""

    def __init__(self, obs_spec):
        super().__init__()
        self.layer, self.out_features, self.calls = nn.Linear(obs_spec.shape[0], 4), 4, 0

    def forward(self, obs):
        self.calls += 1
        if self.calls == 30:
            raise ValueError("a mistake in the user's network")
        return self.layer(obs)
