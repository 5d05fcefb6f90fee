"""The works of the benchmark and their hyper-parameters: the one place that all contenders read,
with the standard library alone.

A contender is a script `peers/NAME_run.py WORK WARM STEPS [--seed N] [--mode M]` that prints one
line of JSON as its last line:
what it did (`steps updates parameters network batch`) and the `seconds` it took (`cpu`: those it computed). WARM env
steps come before the clock starts.

Kinds of works:

    train      env steps per second of a whole training loop after WARM steps; of envs with several agents per CPU
               second, and a step of all agents together counts once
    operation  microseconds per call of a replay of 100 000 steps that was filled before; STEPS counts the calls
    engine     env steps per second of 8 envs with random actions
    solve      seconds from the start of the process to the end of 10 greedy episodes with the last policy; never if
           it is too weak.
               Every contender looks at its policy so every LOOK env steps and stops when it is good enough
    process    seconds from the start of the process to a certain point
    own        figures of Rookery alone, several of one script
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

DQN = {
    "env": "CartPole-v1",
    "hidden": [128, 128],
    "batch": 64,
    "capacity": 100_000,
    "min_fill": 1_000,  # env steps before the first update
    "lr": 1e-3,
    "gamma": 0.99,
    "max_grad_norm": 10.0,
    "target_every": 200,  # updates between copies of the target network
    "epsilon": (1.0, 0.05),  # share of random actions at the start and from `epsilon_steps` on
    "epsilon_steps": 10_000,
}
PPO = {
    "env": "CartPole-v1",
    "envs": 8,
    "hidden": [64, 64],  # of policy and of value
    "rollout": 128,
    "epochs": 4,
    "minibatches": 4,
    "lr": 3e-4,
    "gamma": 0.99,
    "lam": 0.95,
    "clip": 0.2,
    "value_cost": 0.5,
    "max_grad_norm": 0.5,
    "anneal": False,  # learning rate and clip range down to 0 over the run
}
SAC = {
    "env": "Pendulum-v1",
    "envs": 1,
    "updates_per_step": 1.0,
    "hidden": [256, 256],
    "batch": 256,
    "capacity": 100_000,
    "min_fill": 300,
    "lr": 3e-4,
    "gamma": 0.99,
    "tau": 0.005,
}
PONG = DQN | {
    "env": "ALE/Pong-v5",
    "envs": 8,
    "hidden": [512],  # after the convolutions of Mnih 2015
    "updates_per_step": 0.25,
    "batch": 32,
    "capacity": 10_000,  # small, so that filling it takes no minutes; the cost of a sample does not depend on it
    "min_fill": 1_000,
    "lr": 1e-4,
    "epsilon_steps": 100_000,
}
# What the zoo of Stable-Baselines3 gives for CartPole: budget and hyper-parameters of the peers in `solve`.
ZOO_PPO = PPO | {"rollout": 32, "epochs": 20, "minibatches": 1, "lr": 1e-3, "gamma": 0.98, "lam": 0.8, "anneal": True}
ZOO_DQN = DQN | {
    "envs": 1,
    "hidden": [256, 256],
    "lr": 2.3e-3,
    "target_every": 10,
    "epsilon": (1.0, 0.04),
    "epsilon_steps": 8_000,
    "updates_per_step": 0.5,
    "burst": 256,  # env steps between bursts of updates
}
# Two foragers who must lift food together, and three particles who must cover three landmarks: the presets `lbf-qmix`
# and `spread-mappo`, but for what a peer does not have: three-step returns, double Q, rates that fall.
LBF = {
    "env": "lbforaging:Foraging-8x8-2p-2f-coop-v3",
    "episode": 50,  # env steps until an episode is cut; the env's own limit counts as an end of the task
    "envs": 16,
    "updates_per_step": 0.125,
    "hidden": [64, 64],  # of the members' one network, which is told who each of them is
    "mixer": 32,  # width of the mixer
    "hyper": 64,  # hidden width of the networks that make its weights
    "batch": 128,  # rows of the whole team
    "capacity": 50_000,
    "min_fill": 1_600,
    "lr": 5e-4,
    "gamma": 0.99,
    "tau": 0.01,  # the target follows after every update
    "max_grad_norm": 10.0,
    "epsilon": (1.0, 0.05),
    "epsilon_steps": 20_000,
}
SPREAD = {
    "env": "mpe2:simple_spread_v3",
    "kwargs": {"N": 3, "local_ratio": 0.0, "max_cycles": 25, "continuous_actions": False},
    "agents": 3,
    "envs": 64,
    "hidden": [64, 64],  # of policy and of value, each one network for all agents; the value alone sees the world
    "rollout": 25,
    "epochs": 10,
    "minibatches": 1,
    "lr": 7e-4,
    "gamma": 0.95,
    "lam": 0.95,
    "clip": 0.2,
    "value_cost": 0.5,
    "entropy_bonus": 0.01,
    "max_grad_norm": 10.0,
}
REPLAY = {"capacity": 100_000, "batch": 64, "obs": 4, "actions": 2, "alpha": 0.6, "beta": 0.4}
SOLVED = 475.0
EPISODES = 10  # greedy episodes of a solve
# env steps between looks at the policy in a solve, by whose greedy episodes a run ends as soon as it is good enough
LOOK = 2_500


class Mark(NamedTuple):
    """A moment of a training loop."""

    seconds: float
    steps: int
    updates: int
    cpu: float  # seconds that this process, its threads and its children that have ended computed


@dataclass(frozen=True, slots=True)
class Work:
    """One row group of the table."""

    kind: str
    peers: tuple[str, ...]  # contenders, as in speed.CONTENDERS; the base is among them
    unit: str
    warm: int = 0
    steps: int = 0
    quick: tuple[int, int] | None = (0, 0)  # (warm, steps) of the quick form; None: not in it
    base: str | None = "stable-baselines3"  # whom the ratio is taken to
    settings: dict[str, Any] = field(default_factory=dict)
    target: str = ""  # in words, from the design
    needs: str = ""  # module without which the work is left out

    @property
    def higher_is_better(self) -> bool:
        return self.unit in (RATE, CPU_RATE)


LOOPS = (
    "stable-baselines3",
    "single file",
    "tianshou",
    "rookery eager",
    "rookery compiled",
    "rookery compiled, native engine",
)
NOT_QUICK = ("single file", "tianshou", "rookery compiled")  # whom the quick form leaves out
RATE, CPU_RATE, MICRO = "env steps / s", "env steps / CPU s", "µs"
TEAMS = ("benchmarl", "single file", "rookery eager", "rookery compiled")  # who can do works of several agents


def _dqn(envs: int, share: float, target: str, **sizes: Any) -> Work:
    settings = DQN | {"envs": envs, "updates_per_step": share}
    return Work("train", (*LOOPS, "torchrl", "rllib", "di-engine"), RATE, settings=settings, target=target, **sizes)


ONE, QUARTER = {"warm": 2_000, "steps": 6_000}, {"warm": 2_000, "steps": 16_000}
WORKS = {
    "dqn-1env-1/1": _dqn(1, 1.0, "≥ 8 ×", **ONE, quick=(1_200, 1_600)),
    "dqn-1env-1/4": _dqn(1, 0.25, "≥ 6 ×", **QUARTER, quick=None),
    "dqn-8env-1/1": _dqn(8, 1.0, "≥ 8 ×", **ONE, quick=None),
    "dqn-8env-1/4": _dqn(8, 0.25, "≥ 6 ×", **QUARTER, quick=(1_200, 4_000)),
    "ppo-8x128": Work("train", (*LOOPS, "rllib"), RATE, 4_096, 32_768, (2_048, 8_192), settings=PPO, target="≥ 4 ×"),
    "sac-256": Work("train", LOOPS, RATE, 400, 1_200, (350, 250), settings=SAC, target="≥ 2 ×"),
    "pong-dqn-8env": Work(
        "train",
        ("stable-baselines3", "rookery eager", "rookery compiled"),
        RATE,
        1_600,
        3_200,
        None,
        settings=PONG,
        target="≥ 1.5 ×",
        needs="ale_py",
    ),
    "qmix-lbf": Work(
        "train",
        TEAMS,
        CPU_RATE,
        3_200,
        12_800,
        None,
        base="benchmarl",
        settings=LBF,
        target="≥ 3 × BenchMARL",
        needs="lbforaging",
    ),
    "mappo-spread": Work(
        "train",
        (*TEAMS, "rookery compiled, native engine"),
        CPU_RATE,
        3_200,
        12_800,
        None,
        base="benchmarl",
        settings=SPREAD,
        target="≥ 3 × BenchMARL",
        needs="mpe2",
    ),
    "replay-add": Work(
        "operation",
        ("stable-baselines3", "tianshou", "rookery"),
        MICRO,
        0,
        50_000,
        (0, 5_000),
        settings=REPLAY,
        target="≥ 3 ×",
    ),
    "replay-sample": Work(
        "operation",
        ("stable-baselines3", "tianshou", "rookery"),
        MICRO,
        0,
        20_000,
        (0, 4_000),
        settings=REPLAY,
        target="≥ 8 ×",
    ),
    "replay-prioritised": Work(
        "operation",
        ("tianshou", "rookery"),
        MICRO,
        0,
        20_000,
        (0, 4_000),
        base="tianshou",
        settings=REPLAY,
        target="≥ 4 × Tianshou",
    ),
    "engine-8env": Work(
        "engine",
        ("gymnasium SyncVectorEnv", "rookery gymnasium", "rookery native"),
        RATE,
        8_000,
        160_000,
        (8_000, 40_000),
        base="gymnasium SyncVectorEnv",
        settings={"env": "CartPole-v1", "envs": 8},
    ),
    "solve-ppo": Work(
        "solve",
        ("stable-baselines3", "single file", "rookery"),
        "s",
        0,
        100_000,
        (0, 100_000),
        settings=ZOO_PPO,
        target="< 5 s",
    ),
    "solve-dqn": Work(
        "solve",
        ("stable-baselines3", "single file", "rookery"),
        "s",
        0,
        50_000,
        None,
        settings=ZOO_DQN,
        target="< 15 s",
    ),
    "start-help": Work("process", ("rookery",), "s", base=None, target="≤ 0.3 s"),
    "start-import": Work("process", ("stable-baselines3", "tianshou", "rookery"), "s", target="≤ 1.5 s"),
    "start-first-update": Work("process", ("stable-baselines3", "rookery"), "s", target="≤ 3 s"),
    "checkpoint": Work("own", ("rookery",), "", 0, 1_000_000, (0, 100_000), base=None),
    "growth": Work("own", ("rookery",), "", 10_000, 1_000_000, (10_000, 100_000), base=None),
}


def arguments() -> argparse.Namespace:
    """What a contender is told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=list(WORKS))
    parser.add_argument("warm", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", default="")
    return parser.parse_args()


def since_start() -> float:
    """Seconds since the benchmark started this process."""
    return time.time() - float(os.environ["ROOKERY_BENCH_START"])


def network_of(shapes: Iterable[tuple[int, ...]]) -> str:
    """The layers in a form that does not depend on how heads are split: per input width, all outputs together.

    Shapes are those of torch's weights, (out, in) or (out, in, height, width); biases are left out.
    """
    found: dict[int, int] = {}
    for shape in shapes:
        if len(shape) >= 2:
            inputs = 1
            for size in shape[1:]:
                inputs *= size
            found[inputs] = found.get(inputs, 0) + shape[0]
    return " ".join(f"{inputs}→{outputs}" for inputs, outputs in sorted(found.items()))


def mark(steps: int, updates: int) -> Mark:
    """Where a training loop is now."""
    times = os.times()
    of_children = times.children_user + times.children_system
    return Mark(time.perf_counter(), steps, updates, time.process_time() + of_children)


def answer(marks: Sequence[tuple[Any, ...]], shapes: Iterable[tuple[int, ...]], batch: int) -> dict[str, Any]:
    """What a training loop reports: from the first to the last of its marks, with these parameters."""
    first, last, shapes = marks[0], marks[-1], list(shapes)
    passed = (b - a for a, b in zip(first, last))  # in the order of Mark; some peers leave out the last
    done = dict(zip(Mark._fields, passed)) | {"batch": batch}
    return done | {"parameters": sum(math.prod(shape) for shape in shapes), "network": network_of(shapes)}


def batch_of(settings: dict[str, Any]) -> int:
    """Rows of one update; of several agents who learn by themselves, those of each."""
    s = settings
    return s["batch"] if "batch" in s else s.get("agents", 1) * s["envs"] * s["rollout"] // s["minibatches"]


def updates_per_round(settings: dict[str, Any]) -> tuple[int, int]:
    """(env steps per env, updates) of one round of an off-policy loop that learns after every round."""
    burst, envs, share = settings.get("burst"), settings["envs"], settings["updates_per_step"]
    calls = burst // envs if burst else max(round(1 / (share * envs)), 1)
    return calls, round(calls * envs * share)
