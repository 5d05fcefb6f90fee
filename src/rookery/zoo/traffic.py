"""Traffic lights in SUMO (`pip install "rookery[traffic]"`): an hour of traffic is 720 steps of 5 s.

Every env has a process of its own, as libsumo wants it.
"""

from __future__ import annotations

from typing import Any

_HOUR = {"num_seconds": 3_600, "delta_time": 5, "yellow_time": 2, "min_green": 5, "reward_fn": "diff-waiting-time"}


def _dqn(steps: int, env: dict[str, Any]) -> dict[str, Any]:
    return {
        "algo": {
            "name": "dqn",
            "gamma": 0.99,
            "lr": 5e-4,
            "target_every": 500,
            "epsilon": {"kind": "linear", "start": 1.0, "end": 0.02, "steps": steps // 2},
        },
        "env": env | {"num": 2, "workers": {"mode": "subprocess"}},
        "model": {"hidden": [64, 64]},
        "store": {"capacity": 100_000, "batch_size": 64, "min_fill": 1_440, "updates_per_step": 0.5},
        "train": {"max_steps": steps},
        "eval": {"every_steps": steps // 4, "episodes": 2, "num": 2},
    }


TRAFFIC_DQN = _dqn(40_000, {"id": "rookery/Crossing-v0", "kwargs": {"network": "single"} | _HOUR})
TRAFFIC_2X2_DQN = _dqn(  # one network for the four crossings
    40_000, {"id": "rookery/Crossings-v0", "api": "parallel", "kwargs": {"network": "2x2"} | _HOUR}
)
