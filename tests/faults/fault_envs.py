"""Envs, encoders and callbacks with one fault each, for whole runs: `--env
faults.fault_envs:Faulty env.kwargs={fault: nan_obs, at: 40}`."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

FAULTS = {
    "nan_obs": lambda obs, reward: (np.full_like(obs, np.nan), reward),
    "nan_reward": lambda obs, reward: (obs, float("nan")),
    "shape": lambda obs, reward: (obs[:1], reward),
    "dtype": lambda obs, reward: (obs.astype(np.int64), reward),
}


class Walk(gymnasium.Env):
    """A noisy walk in two dimensions, pushed by the action; episodes of `length` steps. With `reuse` every
    observation is the same array."""

    metadata = {"render_modes": []}

    def __init__(self, length: int = 8, reuse: bool = False, continuous: bool = False):
        self.observation_space = spaces.Box(-9.0, 9.0, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else spaces.Discrete(2)
        self.length, self.reuse, self.continuous = length, reuse, continuous
        self.lived = 0  # steps in all episodes
        self._place = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        self._place[:] = self.np_random.normal(size=2)
        return self._seen(), {}

    def step(self, action):
        push = float(action[0]) if self.continuous else 2.0 * action - 1.0
        self._place[:] = np.clip(0.9 * self._place + 0.3 * push + 0.1 * self.np_random.normal(size=2), -9, 9)
        self.time, self.lived = self.time + 1, self.lived + 1
        return self._seen(), float(-np.square(self._place).sum()), False, self.time >= self.length, {}

    def _seen(self):
        return self._place if self.reuse else self._place.copy()


class Faulty(Walk):
    """Well-behaved for the first `at` steps of its life (0: not even the reset); one fault
    `times` times from then on."""

    def __init__(self, fault: str, at: int = 0, times: int = 10**9, **kwargs):
        super().__init__(**kwargs)
        self.fault, self.at, self.left = fault, at, times

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        if self.fault == "raise_reset" and self.lived >= self.at:
            raise ZeroDivisionError("the simulator did not start")
        return (self._broken(obs, 0.0)[0] if self.at == 0 else obs), info

    def step(self, action):
        obs, reward, *rest = super().step(action)
        if self.fault == "raise_step" and self.lived > self.at:
            raise ZeroDivisionError("the simulator broke")
        if self.lived > self.at:
            obs, reward = self._broken(obs, reward)
        return obs, reward, *rest

    def _broken(self, obs, reward):
        if self.fault not in FAULTS or self.left <= 0:
            return obs, reward
        self.left -= 1
        return FAULTS[self.fault](obs, reward)


class Slow(Walk):
    """Tells in a file when it steps, and takes `seconds` per step."""

    def __init__(self, file: str, seconds: float):
        super().__init__()
        self.file, self.seconds = Path(file), seconds

    def step(self, action):
        self.file.touch()
        time.sleep(self.seconds)
        return super().step(action)


class FillsDisk(Walk):
    """From step `full` to step `empty` of its life a file leaves no byte free on the disk it lies on."""

    def __init__(self, file: str, full: int, empty: int):
        super().__init__()
        self.file, self.full, self.empty = Path(file), full, empty

    def step(self, action):
        result = super().step(action)
        if self.lived == self.full:
            self._fill()
        if self.lived == self.empty:
            self.file.unlink()
        return result

    def _fill(self):
        with self.file.open("wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))


class LimitsFiles(Walk):
    """From step `full` to step `empty` of its life no file of this process may grow beyond 1 KiB: what a full
    disk is like without a mount."""

    def __init__(self, full: int, empty: int):
        super().__init__()
        self.full, self.empty = full, empty

    def step(self, action):
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        if self.lived in (self.full, self.empty):
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024 if self.lived == self.full else hard, hard))
        return super().step(action)


class Poisoned(nn.Module):
    """An encoder whose own loss is NaN in the updates `first` to `last`, counted over rollbacks too."""

    def __init__(self, obs_spec, first: int, last: int = 10**9):
        super().__init__()
        self.layer, self.out_features = nn.Linear(obs_spec.shape[0], 4), 4
        self.first, self.last, self.calls = first, last, 0

    def forward(self, obs):
        return self.layer(obs).tanh()

    def own_loss(self, batch):
        self.calls += 1
        bad = self.first <= self.calls <= self.last
        return self.layer.bias.sum() * (float("nan") if bad else 0.0), {"poison": torch.tensor(float(bad))}


def marked() -> None:
    """What malicious files try to call: it leaves a file that a test would see."""
    Path(os.environ["FAULTS_MARK"]).touch()


class Prints(Walk):
    """Says in every step that it steps: to Python's stream and, as a library in C would, to its number."""

    def step(self, action):
        print("step", flush=True)
        with contextlib.suppress(OSError):
            os.write(1, b"step\n")
        return super().step(action)
