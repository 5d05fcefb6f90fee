"""Envs in worker processes, measured: what they gain when a step takes time, and what they cost when it takes none.

    python bench/workers.py [--seconds 3] [--envs 8]

    sleeping    every step waits 10 ms: the gain of k processes over one (no CPU is needed, so it does not depend
            on the machine)
    uneven      a step waits 2 to 40 ms, drawn anew each time: subprocess waits for the slowest, async does not
    overhead    CartPole in one process against subprocess, per step of all envs; images of 84 × 84 likewise

Never a pass/fail test: the targets are 1.8 × with 2 processes and 3 × with 4 for `sleeping`.
"""

from __future__ import annotations

import argparse
import statistics
import time

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.core.rng import Streams
from rookery.envs import EnvConfig, VectorEnv, make


class Waiting(gymnasium.Env):
    """Every step waits between `least` and `most` seconds."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, least: float = 0.01, most: float = 0.01):
        self.least, self.most = least, most

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        time.sleep(self.np_random.uniform(self.least, self.most))
        return np.zeros(4, np.float32), 0.0, False, False, {}


class Picture(Waiting):
    """A new grey picture in every step, and no waiting."""

    observation_space = spaces.Box(0, 255, (84, 84, 1), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.picture = self.np_random.integers(0, 255, (84, 84, 1), np.uint8)
        return self.picture, {}

    def step(self, action):
        return self.picture, 0.0, False, False, {}


def built(env_id: str, num: int, workers: dict[str, object], **kwargs: float) -> VectorEnv:
    config = EnvConfig(id=env_id, num=num, engine="gymnasium", workers=workers, kwargs=kwargs)  # type: ignore[arg-type]
    return make(config, count=num, purpose="train", streams=Streams(0))


def pace(env: VectorEnv, seconds: float) -> tuple[float, float]:
    """(env steps per second, median microseconds of a call)."""
    action, steps, calls = np.zeros(env.num, np.int64), 0, []
    env.reset()
    for _ in range(5):
        env.step(action)
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        before = time.perf_counter()
        steps += int(np.count_nonzero(env.step(action).valid))
        calls.append(time.perf_counter() - before)
    took = time.perf_counter() - started
    env.close()
    return steps / took, statistics.median(calls) * 1e6


def row(name: str, workers: dict[str, object], env: VectorEnv, seconds: float, base: float | None) -> float:
    rate, call = pace(env, seconds)
    gain = "" if base is None else f"{rate / base:6.2f} ×"
    told = f"{workers['mode']}, {workers.get('processes', 1)}"
    print(f"{name:<10} {told:<16} {rate:>12.0f} steps/s {call:>10.0f} µs per call {gain}")
    return rate


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=3.0)
    arguments.add_argument("--envs", type=int, default=8)
    given = arguments.parse_args()
    num, seconds = given.envs, given.seconds
    modes: list[dict[str, object]] = [{"mode": "inline"}]
    modes += [{"mode": "subprocess", "processes": k} for k in (1, 2, 4, num)]
    waits = {"sleeping": {"least": 0.01, "most": 0.01}, "uneven": {"least": 0.002, "most": 0.04}}
    for name, wait in waits.items():
        base = None
        for mode in [
            *modes,
            {"mode": "async", "processes": num, "ready": 0.5},
            {"mode": "async", "processes": num, "ready": 1},
        ]:
            rate = row(name, mode, built("workers:Waiting", num, mode, **wait), seconds, base)
            base = base or rate
    for name, env_id in {"cartpole": "CartPole-v1", "picture": "workers:Picture"}.items():
        base = None
        for mode in modes[:4]:
            rate = row(name, mode, built(env_id, num, mode), seconds, base)
            base = base or rate


if __name__ == "__main__":
    main()
