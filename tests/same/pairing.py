"""A game for two that appends every real step to a file, as `same.counting` does."""

from __future__ import annotations

import os

from rookery.envs.tasks.games import Pairing


class CountingPairing(Pairing):
    """Episodes of 20 rounds; each step writes `index seed step` to $COUNTING_FILE."""

    def __init__(self, index: int = 0):
        super().__init__(rounds=20)
        self.index = index

    def reset(self, seed=None, options=None):
        self.started = seed
        return super().reset(seed, options)

    def step(self, actions):
        if path := os.environ.get("COUNTING_FILE"):
            with open(path, "a") as file:
                file.write(f"{self.index} {self.started} {self.time + 1}\n")
        return super().step(actions)
