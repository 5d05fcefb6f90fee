"""Exact resume, checked for real: run a config straight, run it again with `kill -9` in the middle, resume, compare.

    check_exact_resume(["--algo", "dqn", "--env", "my_envs:Mine-v0", "train.max_steps=3000"], folder)

or, as a suite of tests:

    from rookery.testing.resume import ResumeContract

    class TestMine(ResumeContract):
        words = ["--algo=dqn", "--env=my_envs:Mine-v0", "train.max_steps=3000", "checkpoint.every_steps=300"]

Everything must be equal but what depends on a clock: weights, evaluation returns, all metrics.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LONGEST = 600.0  # seconds that one process may take


@dataclass(slots=True)
class Killed:
    """What happened to the killed run."""

    kills: int = 0
    inside_save: int = 0  # kills that left a half-written checkpoint
    resumed_from: list[int] = field(default_factory=list)


def command(words: list[str], folder: Path, *more: str) -> list[str]:
    """The command line of a run."""
    return [sys.executable, "-m", "rookery", "train", *words, "--out", str(folder), *more]


def straight(words: list[str], folder: Path, env: dict[str, str] | None = None) -> None:
    """Run to the end without interruption."""
    done = subprocess.run(command(words, folder), capture_output=True, text=True, env=_env(env), timeout=LONGEST)
    if done.returncode:
        raise AssertionError(f"the straight run ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


def killed_and_resumed(
    words: list[str],
    folder: Path,
    rng: random.Random,
    *,
    kills: int = 1,
    most: float = 1.0,
    env: dict[str, str] | None = None,
) -> Killed:
    """Kill up to `kills` times with SIGKILL, each at a random moment within `most` seconds after a new checkpoint;
    then run to the end."""
    killed = Killed()
    for _ in range(kills):
        process = subprocess.Popen(
            command(words, folder, "--on-exists", "resume"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_env(env),
        )
        if _wait_for_checkpoint(process, folder, set(_committed(folder))):
            _kill_later(process, rng.uniform(0, most))
        process.communicate(timeout=LONGEST)
        if process.returncode == -signal.SIGKILL:
            killed.kills += 1
            killed.inside_save += bool(list((folder / "checkpoints").glob(".tmp-*")))
    straight([*words, "--on-exists", "resume"], folder, env)
    killed.resumed_from = json.loads((folder / "summary.json").read_text())["resumed_from"]
    return killed


def _env(more: dict[str, str] | None) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"} | (more or {})


def _committed(folder: Path) -> list[Path]:
    return list((folder / "checkpoints").glob("step-*/COMMIT"))


def _wait_for_checkpoint(process: subprocess.Popen[bytes], folder: Path, known: set[Path]) -> bool:
    end = time.monotonic() + LONGEST
    while process.poll() is None and time.monotonic() < end:
        if set(_committed(folder)) - known:
            return True
        time.sleep(0.002)
    return False


def _kill_later(process: subprocess.Popen[bytes], seconds: float) -> None:
    time.sleep(seconds)
    if process.poll() is None:
        process.kill()


def outcome(folder: Path) -> dict[str, Any]:
    """All that must be equal: weights, counts, evaluation, every metric of every report that is not clock-dependent."""
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    kept = (
        "status",
        "reason",
        "steps",
        "updates",
        "episodes",
        "return_mean",
        "eval",
        "weights_sha256",
        "exact",
        "learning_mode",
    )
    metrics = [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]
    return {key: summary[key] for key in kept} | {"metrics": metrics}


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Where two outcomes differ, in words; empty when they are equal."""
    texts = [f"{key}: {a[key]!r} != {b[key]!r}" for key in a if key != "metrics" and a[key] != b[key]]
    if len(a["metrics"]) != len(b["metrics"]):
        texts.append(f"{len(a['metrics'])} != {len(b['metrics'])} lines of metrics")
    for i, (x, y) in enumerate(zip(a["metrics"], b["metrics"])):
        texts += [
            f"line {i}, {key}: {x.get(key)!r} != {y.get(key)!r}" for key in {**x, **y} if x.get(key) != y.get(key)
        ]
    return texts


def check_exact_resume(words: list[str], folder: Path, *, seed: int = 0, kills: int = 1, most: float = 1.0) -> Killed:
    """Raises AssertionError with every difference between the straight and the killed run."""
    straight(words, folder / "straight")
    killed = killed_and_resumed(words, folder / "killed", random.Random(seed), kills=kills, most=most)
    texts = differences(outcome(folder / "straight"), outcome(folder / "killed"))
    if texts:
        raise AssertionError("the resumed run differs:\n  " + "\n  ".join(texts[:20]))
    return killed


class ResumeContract:
    """Inherit it and give the `words` of a run on the command line; it should save a few times and last some
    seconds."""

    words: list[str] = []
    kills = 1
    most = 0.3  # seconds after a checkpoint within which it is killed

    def test_killed_and_resumed_equals_uninterrupted(self) -> None:
        assert self.words, f"{type(self).__name__} must say in `words` which run it is about"
        with tempfile.TemporaryDirectory(prefix="rookery-") as place:
            killed = check_exact_resume(list(self.words), Path(place), kills=self.kills, most=self.most)
            summary = json.loads((Path(place) / "killed" / "summary.json").read_text())
        assert killed.kills, "the run was over before it could be killed: make it longer, or save more often"
        assert summary["exact"] is True, f"the run itself says that it is not exact: {summary['exact']}"
