"""An env of your own: given as a factory in Python, and by `module:Id` as on the command line.

python examples/own_env.py                                                    both ways, a few seconds
rookery train --algo dqn --env own_env:Corridor-v0 train.max_steps=3000       in this folder
rookery check-env own_env:Corridor
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery import Experiment, check_env


class Corridor(gymnasium.Env):
    """Walk right to the end of a corridor. Reward −1 per step; 20 steps are a time limit, not an end of the task."""

    metadata = {"render_modes": []}

    def __init__(self, length: int = 6):
        self.length = length
        self.observation_space = spaces.Box(0, 1, (2,), np.float32)  # position, and a noisy copy of it
        self.action_space = spaces.Discrete(2)  # left, right

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)  # seeds self.np_random: draw from nothing else, and a run can be resumed exactly
        self.position, self.steps = 0, 0
        return self.look(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.position = max(0, self.position + (1 if action == 1 else -1))
        self.steps += 1
        terminated = self.position == self.length  # the task is over: no value after it
        truncated = not terminated and self.steps == 20  # time is over: the value goes on
        return self.look(), -1.0, terminated, truncated, {}

    def look(self) -> np.ndarray:
        here = self.position / self.length
        return np.array([here, np.clip(here + self.np_random.normal(0, 0.05), 0, 1)], np.float32)


if "Corridor-v0" not in gymnasium.registry:  # this file is __main__ and own_env when it runs as a script
    gymnasium.register("Corridor-v0", entry_point=Corridor)

TINY = [
    "train.max_steps=3000",
    "store.min_fill=200",
    "algo.epsilon={kind: linear, start: 1, end: 0.05, steps: 1500}",
    "model.hidden=[32]",
]


def main() -> None:
    print(check_env(Corridor))
    by_factory = Experiment(algo="dqn", env=lambda: Corridor(length=6), overrides=TINY).train()
    by_id = Experiment(algo="dqn", env="own_env:Corridor-v0", overrides=TINY).train()
    for way, result in (("factory", by_factory), ("module:Id", by_id)):
        print(
            f"{way}: greedy return {result.summary['eval']['mean']:.1f}, best possible −6.0, folder "
            f"{result.folder.name}"
        )


if __name__ == "__main__":
    main()
