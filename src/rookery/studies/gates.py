"""The learning gates: what the last policy of a preset must reach at its step budget, over many seeds.

A preset is judged by the interquartile mean over its seeds. `rookery verify` and bench/learn.py read this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EPISODES = 100  # greedy test episodes of each policy
TEST_SEED = 1_000_003  # of these episodes: no run uses it for selection


@dataclass(frozen=True, slots=True)
class Gate:
    """What a preset must reach."""

    seeds: int
    wanted: float  # for the interquartile mean over the seeds
    figure: Literal["return", "success"] = "return"  # of the episodes: mean return, or share of successes
    most: float | None = None  # what it must not exceed: the known failure of an algorithm is part of what is measured


_CARTPOLE = Gate(10, 475.0)
_NOVEL = Gate(10, 450.0)  # without velocities
_PENDULUM = Gate(10, -200.0)
_ACROBOT = Gate(5, -85.0)

GATES = {
    "acrobot-dqn": _ACROBOT,
    "acrobot-ppo": _ACROBOT,
    "acrobot-qrdqn": _ACROBOT,
    "bitflip8-dqn-her": Gate(5, 0.9, "success"),
    "cartpole-a2c": _CARTPOLE,
    "cartpole-apex": _CARTPOLE,
    "cartpole-appo": _CARTPOLE,
    "cartpole-c51": _CARTPOLE,
    "cartpole-dqn": _CARTPOLE,
    "cartpole-dqn-per": _CARTPOLE,
    "cartpole-fqf": _CARTPOLE,
    "cartpole-impala": _CARTPOLE,
    "cartpole-iqn": _CARTPOLE,
    "cartpole-mdqn": _CARTPOLE,
    "cartpole-novel-drqn": _NOVEL,
    "cartpole-novel-ppo-lstm": _NOVEL,
    "cartpole-novel-r2d2": _NOVEL,
    "cartpole-ppg": _CARTPOLE,
    "cartpole-ppo": _CARTPOLE,
    "cartpole-pqn": _CARTPOLE,
    "cartpole-qrdqn": _CARTPOLE,
    "cartpole-rainbow": _CARTPOLE,
    "cartpole-reinforce": _CARTPOLE,
    "cartpole-sac-discrete": _CARTPOLE,
    "cartpole-trpo": _CARTPOLE,
    "chain20-ppo-rnd": Gate(5, 0.9, "success"),
    "halfcheetah-ppo": Gate(5, 1443.0),  # this and the next: the lowest that was published, CleanRL's
    "hopper-ppo": Gate(5, 2383.0),
    "lunarlander-ppo": Gate(5, 200.0),
    "mountaincar-continuous-sac": Gate(5, 93.0),
    "mountaincar-ppo": Gate(5, -110.0),
    "pendulum-a2c": _PENDULUM,
    "pendulum-crossq": _PENDULUM,
    "pendulum-ddpg": _PENDULUM,
    "pendulum-ppo": _PENDULUM,
    "pendulum-redq": _PENDULUM,
    "pendulum-sac": _PENDULUM,
    "pendulum-td3": _PENDULUM,
    "pendulum-tqc": _PENDULUM,
    "two-step-qmix": Gate(10, 8.0),
    "two-step-vdn": Gate(10, 7.0, most=7.0),  # a sum cannot say that one's best action depends on the other's
    "credit-coma": Gate(5, 1.0),
    "whisper-atoc": Gate(5, 0.95),
    "whisper-collaq": Gate(5, 1.0),
    "summing-maddpg": Gate(5, 0.95),
    "spread-mappo": Gate(5, -108.0),  # summed over three agents; those of teams are their mean
    "spread-qmix": Gate(5, -38.0),
    "spread-vdn": Gate(5, -38.0),
    "lbf-mappo": Gate(5, 0.95),
    "lbf-qmix": Gate(5, 0.95),
}
