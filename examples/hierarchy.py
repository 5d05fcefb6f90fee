"""Two levels in one env: a planner names a cell, a walker goes there and is paid for that alone.

The walker's stint ends when it has arrived (terminated) or after six steps (truncated); then the planner has its turn,
and the walker comes back with the next cell. Each level is a player with an algorithm of its own.

python examples/hierarchy.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rookery import Trainer, load_config

CELLS, STINT, PLANS = 15, 6, 6
Five = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]


class Corridor:
    """A corridor of 15 cells. The treasure lies at one of its ends, which only the planner sees; it names one of five
    cells. env.api=dict: whoever observes acts next."""

    possible_agents = ("planner", "walker")
    observation_spaces = {
        "planner": spaces.Box(-1.0, 1.0, (2,), np.float32),  # where they are, where the treasure is
        "walker": spaces.Box(-1.0, 1.0, (1,), np.float32),  # how far the cell is
    }
    action_spaces = {"planner": spaces.Discrete(5), "walker": spaces.Discrete(2)}
    time_limit = PLANS * (STINT + 1)

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.cell, self.treasure, self.plans = CELLS // 2, int(self.random.integers(2)) * (CELLS - 1), 0
        return {"planner": self._map()}, {}

    def step(self, actions: dict[str, int]) -> Five:
        if "planner" in actions:
            self.goal, self.left, self.plans = actions["planner"] * (CELLS - 1) // 4, STINT, self.plans + 1
            return self._answer({"walker": self._way()}, {})
        self.cell, self.left = int(np.clip(self.cell + 2 * actions["walker"] - 1, 0, CELLS - 1)), self.left - 1
        arrived, found = self.cell == self.goal, self.cell == self.treasure
        pay = {"walker": 1.0 if arrived else -0.1}
        if not (arrived or self.left == 0 or found):
            return self._answer({"walker": self._way()}, pay)
        pay["planner"] = float(found)
        over = found or self.plans == PLANS
        obs = {"walker": self._way()} | ({} if over else {"planner": self._map()})
        return self._answer(obs, pay, {"walker": arrived, "__all__": over}, {"walker": not arrived})

    def _map(self) -> np.ndarray:
        return np.array([2 * self.cell / (CELLS - 1) - 1, 2 * self.treasure / (CELLS - 1) - 1], np.float32)

    def _way(self) -> np.ndarray:
        return np.array([(self.goal - self.cell) / (CELLS - 1)], np.float32)

    def _answer(self, obs: Any, pay: Any, ends: Any = None, cut: Any = None) -> Five:
        return obs, pay, {"__all__": False} | (ends or {}), {"__all__": False} | (cut or {}), {}


EPSILON = {"kind": "linear", "start": 1.0, "end": 0.05, "steps": 4000}
CONFIG: dict[str, Any] = {
    "env": {"api": "dict", "num": 8},
    "model": {"hidden": [32], "activation": "tanh"},
    "players": {
        "planner": {"algo": {"name": "ppo", "lr": 5e-3, "rollout": 64, "entropy_bonus": 0.01}},
        "walker": {
            "algo": {"name": "dqn", "lr": 2e-3, "gamma": 0.9, "epsilon": EPSILON},
            "store": {"min_fill": 500, "capacity": 10_000},
        },
    },
    "seats": {"planner": "planner", "walker": "walker"},
    "train": {"max_steps": 12_000},
    "learning": {"mode": "eager"},
    "log": {"sinks": [], "every_steps": 2_000},
    "eval": {"episodes": 40, "num": 8},
}


def main() -> None:
    with Trainer(load_config(tree=CONFIG), env=Corridor) as trainer:
        for progress in trainer:
            returns = {name: progress.metrics.get(f"player/{name}/return_mean") for name in trainer.players}
            print(f"{progress.steps:>6} steps  " + "  ".join(f"{name} {value:.2f}" for name, value in returns.items()))
        found = progress.evaluation.players["planner"]
        print(f"greedy: the planner finds the treasure in {found:.0%} of the episodes")


if __name__ == "__main__":
    main()
