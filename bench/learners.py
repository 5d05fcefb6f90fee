"""Several learners, measured: what they gain when the network is large, and what they cost when it is small.

    python bench/learners.py [--learners 1 2] [--seconds 3] [--repeats 5]

    heavy       DQN, two layers of 1024, batch 1024: learning is all the work there is
    sac         SAC, two layers of 512, batch 1024: three gradients per update, each exchanged on its own
    light       DQN, two layers of 128, batch 64: too small to be shared

Eager updates on random batches, without envs and stores, one thread per learner. The groups take turns, `repeats`
times; shown is the best turn of each, which other work on the machine has disturbed least, and the median. On a machine
without a free core per learner those say nothing; the CPU time of an update in the run's own process still does: its
gain is what the wall clock would show if nobody had to wait.
Never a pass/fail test: the target is 1.3 × with 2 learners for `heavy`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rookery.algos.base import Algorithm
from rookery.algos.dqn import DQN, DQNConfig
from rookery.algos.sac import SAC, SACConfig
from rookery.core.rng import Streams
from rookery.core.spec import spec_of
from rookery.learning.group.follower import GroupSpec
from rookery.learning.group.leader import Leader
from rookery.learning.learner import Learner
from rookery.nets import ModelConfig

WIDTH = 64  # of an observation
OBS, BOX = spec_of(spaces.Box(-1, 1, (WIDTH,), np.float32)), spec_of(spaces.Box(-1, 1, (8,), np.float32))
FOUR = spec_of(spaces.Discrete(4))


def model(size: int) -> ModelConfig:
    return ModelConfig(hidden=(size, size), activation="relu")


CASES: dict[str, tuple[Any, int]] = {  # name → (algorithm, rows of a batch)
    "heavy": (partial(DQN, DQNConfig(), OBS, FOUR, model(1024)), 1024),
    "sac": (partial(SAC, SACConfig(), OBS, BOX, model(512)), 1024),
    "light": (partial(DQN, DQNConfig(), OBS, FOUR, model(128)), 64),
}


def batch_of(algo: Algorithm, rows: int) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    action = torch.randint(0, 4, (rows,), generator=g) if algo.name == "dqn" else torch.rand(rows, 8, generator=g)
    numbers = {key: torch.randn(rows, WIDTH, generator=g) for key in ("obs", "next_obs")}
    return numbers | {
        "action": action,
        "reward": torch.randn(rows, generator=g),
        "discount": torch.full((rows,), 0.99),
        "weight": torch.ones(rows),
    }


def learner_of(make: Any, learners: int) -> Learner:
    algo = make()
    it = (
        Learner(algo, Streams(0))
        if learners == 1
        else Leader(algo, Streams(0), GroupSpec(make, learners, 0, "cpu", 300.0))
    )
    it.set_knobs({name: schedule.resolved(1000).at(0) for name, schedule in algo.knobs().items()})
    return it


def turn(it: Learner, batch: dict[str, torch.Tensor], seconds: float) -> tuple[float, float]:
    """(updates per second, CPU milliseconds of one in this process)."""
    count, start, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        it.step(batch)
        count += 1
    return count / (time.perf_counter() - start), (time.process_time() - used) / count * 1e3


def measure(
    make: Any, rows: int, counts: list[int], options: argparse.Namespace
) -> dict[int, list[tuple[float, float]]]:
    made = {n: learner_of(make, n) for n in counts}
    batch = batch_of(next(iter(made.values())).algo, rows)  # type: ignore[arg-type]
    found: dict[int, list[tuple[float, float]]] = {n: [] for n in counts}
    try:
        for it in made.values():
            it.step(batch)  # starts the others
        for _ in range(options.repeats):
            for n, it in made.items():
                found[n].append(turn(it, batch, options.seconds))
    finally:
        for it in made.values():
            if isinstance(it, Leader):
                it.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--learners", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, one thread per learner")
    print(f"{'case':8} {'learners':>8} {'updates/s':>12} {'median':>8} {'gain':>8} {'CPU ms':>8} {'gain':>8}")
    for name in options.cases:
        found = measure(*CASES[name], options.learners, options)
        base: tuple[float, float] | None = None
        for n, turns in found.items():
            rates, used = zip(*turns)
            best, least = max(rates), min(used)
            base = base or (best, least)
            rate = f"{best:>12.1f} {statistics.median(rates):>8.1f} {best / base[0]:>6.2f} ×"
            print(f"{name:8} {n:>8} {rate} {least:>8.1f} {base[1] / least:>6.2f} ×", flush=True)


if __name__ == "__main__":
    main()
