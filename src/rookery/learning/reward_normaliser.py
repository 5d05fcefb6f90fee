"""Rewards in units of the running deviation of the discounted return (`algo.normalise_reward`).

    R_t = γ R_{t−1} + r_t                 of every column, from 0 where an episode begins
    r'  = clip(r / √(Var R + ε), ±10)     what is learnt from; Var over all R so far; of n-step returns their sum

Only what is learnt from is scaled: stores, reports and evaluation know the rewards of the env. The mean is not taken
off, for that would change which policy is best.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rookery.core.chunk import Chunk

CLIP = 10.0
EPSILON = 1e-8


class RewardNormaliser:
    """Sees every chunk before it is learnt from."""

    def __init__(self, gamma: float):
        self.gamma = gamma
        self.count, self.mean, self.square = 0.0, 0.0, 0.0  # of R: number, mean, sum of squared deviations
        self.running: dict[str, np.ndarray] = {}  # collector → R of its columns

    @property
    def factor(self) -> float:
        """What rewards are multiplied by; 1 before anything was seen."""
        return 1.0 / math.sqrt(self.square / self.count + EPSILON) if self.square else 1.0

    def observe(self, chunk: Chunk) -> None:
        """The rewards of a chunk, row by row."""
        rows, key = chunk.rows, str(chunk.collector)
        width = rows["reward"].shape[1]
        now = self.running.get(key)
        now = np.zeros(width) if now is None or len(now) != width else now
        for reward, first, valid in zip(rows["reward"], rows["first"], rows["valid"]):
            now = np.where(valid, self.gamma * np.where(first, 0.0, now) + reward, now)
            self._merge(now[valid])
        self.running[key] = now

    def _merge(self, values: np.ndarray) -> None:
        """Chan, Golub and LeVeque 1979."""
        if not len(values):
            return
        k, mean = float(len(values)), float(values.mean())
        total, delta = self.count + k, mean - self.mean
        self.square += float(np.square(values - mean).sum()) + delta * delta * self.count * k / total
        self.mean += delta * k / total
        self.count = total

    def scaled(self, reward: Tensor) -> Tensor:
        """Rewards as they are learnt from, in a tensor of their own."""
        return torch.clamp(reward * self.factor, -CLIP, CLIP)

    def state(self) -> dict[str, Any]:
        numbers = {"count": self.count, "mean": self.mean, "square": self.square}
        return numbers | {"running": {key: now.copy() for key, now in self.running.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        self.count, self.mean, self.square = (float(state[name]) for name in ("count", "mean", "square"))
        self.running = {key: np.array(now, np.float64) for key, now in state["running"].items()}
