"""Running the command from a test: in this process (quick), or as a process of its own where
signals and exit codes are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rookery

TESTS = Path(__file__).parent.parent
WALK = ["--env", "faults.fault_envs:Walk"]
FAULTY = ["--env", "faults.fault_envs:Faulty"]
_QUICK = {
    "train.max_steps": "120",
    "checkpoint.every_steps": "50",
    "eval.every_steps": "0",
    "eval.at_end": "false",
    "eval.episodes": "2",
    "eval.num": "2",
    "log.every_steps": "40",
    "log.sinks": "[jsonl]",
    "learning.mode": "eager",
    "model.hidden": "[4]",
}
_REPLAY = {"store.min_fill": "32", "store.batch_size": "16", "store.capacity": "200"}
_ALGOS = {"dqn": _REPLAY, "sac": _REPLAY, "ppo": {"algo.rollout": "16", "env.num": "2"}}


def quick(algo: str = "dqn", *changes: str) -> list[str]:
    """The words of a run that takes a fraction of a second; changes are words too."""
    values = _QUICK | _ALGOS[algo] | dict(word.split("=", 1) for word in changes)
    return ["--algo", algo, *(f"{key}={value}" for key, value in values.items() if value)]


DQN = quick()


@dataclass(slots=True)
class Ended:
    """How a command ended: exit code, what it printed, and what was logged."""

    code: int
    out: str
    err: str
    log: str = ""


Cli = Callable[..., Ended]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rookery", *arguments]


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(TESTS), str(Path(rookery.__file__).parent.parent)])
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path} | more


def in_process(*arguments: str, folder: Path, before: str = "") -> Ended:
    """A process of its own; `before` is a shell command (a mount) in a namespace that vanishes with it."""
    words = command(*arguments)
    if before:
        words = ["unshare", "-rm", "sh", "-c", f'{before} && exec "$@"', "sh", *words]
    done = subprocess.run(
        words, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def started(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def checkpoint(folder: Path, step: int) -> Path:
    return folder / "checkpoints" / f"step-{step:012d}"
