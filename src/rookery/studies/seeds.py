"""Many seeds of one config: each a run of its own in a child process, then its last policy judged in another.

A run is `rookery train … --on-exists resume`: started again in the same folder it goes on, and one that is finished
ends at once. Children have sessions of their own, so a Ctrl-C reaches them once and through here: each saves and ends.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rookery.core.errors import RookeryError

ROOKERY = (sys.executable, "-m", "rookery")


@dataclass(frozen=True, slots=True)
class Plan:
    """Which runs, and how they are judged."""

    preset: str
    overrides: tuple[str, ...]
    out: Path
    figure: str  # of the greedy episodes: "return" or "success"
    episodes: int
    test_seed: int

    def folder(self, seed: int) -> Path:
        """Runs with other overrides are other runs; without any, the name is that of the preset."""
        mark = hashlib.sha256("\n".join(self.overrides).encode()).hexdigest()[:6]
        return self.out / (f"{self.preset}-{mark}-{seed}" if self.overrides else f"{self.preset}-{seed}")

    def training(self, seed: int) -> list[str]:
        words = ["train", self.preset, *self.overrides, f"--seed={seed}", f"--out={self.folder(seed)}"]
        return [*ROOKERY, *words, "log.sinks=[jsonl]", "--on-exists=resume"]

    def judging(self, seed: int) -> list[str]:
        words = [f"--episodes={self.episodes}", f"--seed={self.test_seed}", "--checkpoint=last"]
        return [*ROOKERY, "eval", str(self.folder(seed)), "--json", *words]


@dataclass(frozen=True, slots=True)
class Judged:
    """One seed: what its last policy reached."""

    seed: int
    value: float  # the plan's figure
    returns: tuple[float, float]  # mean and standard deviation
    steps: int
    mode: str  # eager or compiled
    curve: list[tuple[float, float]]  # (env steps, figure) of the evaluations during training
    seconds: float  # of this call: nothing but the judging, if the run was finished before

    def stored(self) -> dict[str, Any]:
        """As docs/curves/ keeps it."""
        return {"seed": self.seed, "mean": self.value, "steps": self.steps, "mode": self.mode, "curve": self.curve}


class Crew:
    """Runs seeds in up to `jobs` child processes at a time;
    use as a context manager, in the main thread if signals should be heard.
    """

    def __init__(self, jobs: int):
        self.jobs = jobs
        self._children: set[subprocess.Popen[str]] = set()
        self._lock, self._stopping = threading.Lock(), False
        self._before: Any = None

    def __enter__(self) -> Crew:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, _interrupt)  # as Ctrl-C: children must not be left behind
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def run(self, plan: Plan, seeds: Sequence[int], tell: Callable[[Judged], None]) -> list[Judged]:
        """Judged seeds in their order; `tell` hears of each when it is done.

        The first failure ends the others, which can be resumed.
        """
        with ThreadPoolExecutor(self.jobs) as threads:
            waiting = [threads.submit(self.one, plan, seed) for seed in seeds]
            try:
                for done in as_completed(waiting):
                    tell(done.result())
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                self.stop()
                raise
        return [done.result() for done in waiting]

    def one(self, plan: Plan, seed: int) -> Judged:
        """Train one seed, or go on with it, and judge its last policy."""
        started = time.monotonic()
        self._output(plan.training(seed))
        judged = json.loads(self._output(plan.judging(seed)))
        folder = plan.folder(seed)
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        value = judged["mean" if plan.figure == "return" else plan.figure]
        returns, seconds = (judged["mean"], judged["std"]), time.monotonic() - started
        curve = _curve(folder, f"eval/{plan.figure}_mean")
        return Judged(seed, value, returns, summary["steps"], summary["learning_mode"], curve, seconds)

    def stop(self) -> None:
        """Ask every child to save and end, and wait for that; nothing starts afterwards."""
        with self._lock:
            self._stopping = True
            children = list(self._children)
        for child in children:
            child.terminate()
        for child in children:
            child.wait()

    def _output(self, command: list[str]) -> str:
        """Standard output of a command that must succeed."""
        with self._lock:
            if self._stopping:
                raise RookeryError("stopped before this seed began")
            pipe = subprocess.PIPE
            child = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
            self._children.add(child)
        out, err = child.communicate()
        with self._lock:
            self._children.discard(child)
        if child.returncode:
            output = (err.strip() or out.strip())[-2000:]
            raise RookeryError(f"`{' '.join(command[2:])}` ended with {child.returncode}:\n{output}")
        return out


def _curve(folder: Path, metric: str) -> list[tuple[float, float]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if metric in row]
    return [(row["eval/steps"], row[metric]) for row in rows]


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
