"""Envs with several agents, and a vector engine, that fail at one step of their lives: `env.kwargs={fault:
hang, when: 20, marks: FOLDER}`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rookery.envs.tasks.games import Pairing, Verdicts


def first_to_make(mark: Path) -> bool:
    """Whether this process made the file: two may come here at the same moment."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Fault:
    """At step `when` of its life, once if `marks` names a folder."""

    def __init__(self, fault: str, when: int, marks: str = ""):
        self.fault, self.when, self.marks, self.lived = fault, when, marks, 0

    def strike(self) -> None:
        self.lived += 1
        if self.lived != self.when or (self.marks and not first_to_make(Path(self.marks) / "struck")):
            return
        if self.fault == "raise":
            raise ValueError("the gripper is stuck")
        if self.fault == "exit":
            sys.exit(0)
        if self.fault == "hang":
            time.sleep(1000)
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


class FaultyPairing(Pairing):
    def __init__(self, fault: str, when: int, marks: str = ""):
        super().__init__()
        self._fault = Fault(fault, when, marks)

    def step(self, actions):
        self._fault.strike()
        return super().step(actions)


class FaultyVerdicts(Verdicts):
    def __init__(self, fault: str, when: int, marks: str = ""):
        super().__init__()
        self._fault = Fault(fault, when, marks)

    def step(self, action):
        self._fault.strike()
        return super().step(action)


class FaultyVector(gymnasium.vector.VectorEnv):
    """Episodes of 8 steps, all at once."""

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1, fault: str = "", when: int = 0, marks: str = "", **_: object):
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._fault, self.time = Fault(fault, when, marks), 0

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self._seen(), {}

    def step(self, actions):
        self._fault.strike()
        self.time = (self.time + 1) % 9  # 0: the dead step after the end
        nobody = np.zeros(self.num_envs, bool)
        return self._seen(), np.ones(self.num_envs), nobody, nobody | (self.time == 8), {}

    def _seen(self):
        return np.full((self.num_envs, 2), self.time / 8, np.float32)


gymnasium.register("FaultyVector-v0", vector_entry_point="faults.multi_envs:FaultyVector")
