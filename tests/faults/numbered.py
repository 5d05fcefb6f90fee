"""An env whose observations number its steps, so that every recorded row can be told from every
other; it fails as it is told."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces


class Numbered(gymnasium.Env):
    """Observation: [env, number of the seed, steps of the episode]; reward: steps after this one.
    `share` of the steps end in `fault`.

    `only`: the env (by index) that fails, −1 for all. `marks`: a folder; with it a fault happens once, at step `when`.
    """

    observation_space = spaces.Box(-1, 2**24, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, fault="", share=0.0, when=-1, only=-1, marks="", length=12, seconds=0.0, index=0):
        self.fault, self.share, self.when, self.length = fault, share, when, length
        self.index, self.marks, self.seconds = index, marks, seconds
        self.fails = only in (-1, index)
        self.phase = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number, self.time = seed % 2**20, 0
        if self.fault == "reset" and self.fails and self._now():
            raise OSError("the simulator does not start")
        return self._seen(), {}

    def step(self, action):
        if self.fails and self.fault and self._now():
            if self.fault == "abnormal":
                return None, np.nan, "nonsense", False, {"abnormal": True}
            self._fail()
        if self.seconds:
            time.sleep(self.seconds)
        self.time += 1
        return self._seen(), float(self.time), False, self.time >= self.length, {"phase": self.phase}

    def _now(self):
        if self.marks:
            mark = Path(self.marks) / f"{self.index}"
            if self.time != self.when or mark.exists():
                return False
            mark.touch()
            return True
        return self.time == self.when or self.np_random.random() < self.share

    def _fail(self):
        if self.fault == "raise":
            raise ValueError("the gripper is stuck")
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "segfault":
            faulthandler.disable()  # forked from pytest, it would write its stack into the output of a passing test
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.fault == "hang":
            time.sleep(1000)
        if self.fault == "sys.exit":
            sys.exit(0)
        if self.fault == "exit":
            os._exit(7)

    def _seen(self):
        return np.array([self.index, self.number, self.time], np.float32)

    def set_phase(self, phase):
        self.phase = phase
        return os.getpid()


class Rows:
    """Looks at chunks as they are collected: every valid row is one step of one env, none is there
    twice, none is linked wrongly."""

    def __init__(self, columns):
        self.seen, self.before = set(), [None] * columns
        self.count = self.ended = 0

    def take(self, chunk):
        rows = chunk.rows
        finals = {tuple(at): obs for at, obs in zip(chunk.final_at.tolist(), chunk.final_obs)}
        for t, i in np.argwhere(rows["valid"]).tolist():
            env, number, time_ = rows["obs"][t, i].astype(int).tolist()
            assert env == i
            assert (env, number, time_) not in self.seen
            self.seen.add((env, number, time_))
            assert rows["reward"][t, i] == time_ + 1
            assert rows["first"][t, i] == (time_ == 0)
            if not rows["first"][t, i]:
                assert self.before[i] == (number, time_ - 1)
            closed = rows["terminated"][t, i] or rows["truncated"][t, i]
            assert closed == ((t, i) in finals)
            after = finals[t, i] if closed else self._after(chunk, t, i)
            assert after.tolist() == [i, number, time_ + 1] or not closed
            self.before[i] = (number, time_)
            self.count += 1
        self.ended += len(chunk.episodes)
        assert all(end.length == end.total == 12 or end.total == 78 for end in chunk.episodes)

    @staticmethod
    def _after(chunk, t, i):
        return chunk.rows["obs"][t + 1, i] if t + 1 < len(chunk.rows["reward"]) else chunk.last_obs[i]
