"""Envs that tests steer: scripted episodes, one that counts its real steps in a file, and envs with one fault each."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Scripted(gymnasium.Env):
    """Plays `script`: episodes of (reward, terminated, truncated); the observation is [episode, step, last action]."""

    metadata = {"render_modes": []}

    def __init__(self, script: list[list[tuple[Any, bool, bool]]], reuse: bool = False):
        self.observation_space = spaces.Box(-1e6, 1e6, (3,), np.float32)
        self.action_space = spaces.Discrete(7)
        self.script, self.reuse = script, reuse
        self.seeds: list[int | None] = []
        self._array = np.zeros(3, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode, self.time = (seed or 0) % len(self.script), 0  # the seed alone says which episode is played
        return self._obs(0), {}

    def step(self, action):
        reward, terminated, truncated = self.script[self.episode][self.time]
        self.time += 1
        return self._obs(action), reward, terminated, truncated, {"time": self.time}

    def _obs(self, action):
        obs = self._array if self.reuse else np.zeros(3, np.float32)
        obs[:] = self.episode, self.time, action
        return obs


class CountingEnv(gymnasium.Env):
    """A random walk that appends one line `episode-seed action` per real step to the file `log`."""

    metadata = {"render_modes": []}

    def __init__(self, log: str, length: int = 20):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.log, self.length = Path(log), length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed_given, self.time = seed, 0
        self.place = float(self.np_random.normal())
        return self._obs(), {}

    def step(self, action):
        self.time += 1
        self.place += (2 * int(action) - 1) + 0.1 * float(self.np_random.normal())
        with self.log.open("a") as file:
            file.write(f"{self.seed_given} {int(action)}\n")
        return self._obs(), -abs(self.place), abs(self.place) > 5, self.time >= self.length, {}

    def _obs(self):
        return np.array([self.place, self.time], np.float32)


class WithSnapshot(CountingEnv):
    """Hands out its whole state, the generator included."""

    def snapshot(self):
        rng = self.np_random.bit_generator.state
        return {"time": self.time, "place": self.place, "seed": self.seed_given, "rng": rng}

    def restore_snapshot(self, state):
        self.time, self.place, self.seed_given = state["time"], state["place"], state["seed"]
        self.np_random.bit_generator.state = state["rng"]


class Faulty(gymnasium.Env):
    """Well-behaved until `after` steps of an episode are done; then `fault(obs, reward)` says what comes out."""

    metadata = {"render_modes": []}

    def __init__(self, fault=None, after: int = 0, length: int = 10, space: spaces.Space | None = None, bad_seeds=None):
        self.observation_space = copy.deepcopy(space) or spaces.Box(-1.0, 1.0, (3,), np.float32)  # it is drawn from
        self.action_space = spaces.Discrete(2)
        self.fault, self.after, self.length, self.bad_seeds = fault, after, length, bad_seeds

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.given, self.time = seed, 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.time += 1
        obs, reward = self.observation_space.sample(), 1.0
        hit = self.bad_seeds is None or self.given in self.bad_seeds
        if self.fault is not None and self.time > self.after and hit:
            obs, reward = self.fault(obs, reward)
        return obs, reward, False, self.time >= self.length, {}


class OldStyle:
    """The API of long ago: no seed in reset, four values from step."""

    metadata = {"render.modes": []}

    def __init__(self, limit: int = 5, fall: int = 100):
        self.observation_space = spaces.Box(-10.0, 10.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.limit, self.fall = limit, fall
        self.rng = np.random.default_rng(0)

    def seed(self, seed=None):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.time = 0
        return self.rng.normal(size=2).clip(-3, 3).astype(np.float32)

    def step(self, action):
        self.time += 1
        obs = self.rng.normal(size=2).clip(-3, 3).astype(np.float32)
        fell, late = self.time >= self.fall, self.time >= self.limit
        return obs, 1.0, fell or late, {"TimeLimit.truncated": late and not fell}

    def close(self):
        pass


def make_scripted(worker: int, index: int, length: int = 2) -> Scripted:
    """A factory that is told its place."""
    return Scripted([[(float(100 * worker + index), False, False)] * (length - 1) + [(0.0, True, False)]])


gymnasium.register("SampleCounting-v0", CountingEnv, max_episode_steps=7)
