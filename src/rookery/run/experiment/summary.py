"""summary.json and config.yaml: what a run was and how it ended, for people and scripts."""

from __future__ import annotations

import os
import platform
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from rookery import __version__
from rookery.core.config.yaml import write_text
from rookery.core.errors import CheckpointError
from rookery.run.checkpoints.durable import replace_file
from rookery.run.config.config import Config
from rookery.run.trainer import Trainer


def versions() -> dict[str, str]:
    return {
        "rookery": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
    }


def summary_of(
    trainer: Trainer, status: str, reason: str, *, exact: bool | str, resumed_from: list[int]
) -> dict[str, Any]:
    """The content of summary.json."""
    evaluation = trainer.evaluation
    returns = trainer.meters.episodes.returns
    return {
        "status": status,
        "reason": reason,
        "steps": trainer.steps,
        "updates": trainer.updates,
        "episodes": trainer.episodes,
        "return_mean": returns.mean if len(returns) else None,
        "eval": None if evaluation is None else evaluation.summary(),
        "best": trainer.best,
        "weights_sha256": trainer.players.weights_sha256(),
        "exact": exact,
        "resumed_from": resumed_from,
        "learning_mode": trainer.learner.mode,
        "learning_mode_reason": trainer.learner.note or trainer.players.main.mode_reason,
        "threads": trainer.threads.count,
        "threads_reason": trainer.threads.reason,
        "pool": trainer.pool.kind,
        "workers": [
            {"pid": pid, "steps": steps, "env_pids": env_pids}
            for steps, (pid, *env_pids) in zip(trainer.worker_steps, trainer.pool.pids())
        ],
        "learners": [os.getpid(), *(pid for player in trainer.players.values() for pid in player.learner_pids)],
        "time": {"wall_seconds": trainer.meters.rates.seconds(), "phases": trainer.meters.phases.seconds()},
        "config_sha256": trainer.config.sha256(),
        "versions": versions(),
        "players": trainer.players.summary(),
    }


def ended_as(trainer: Trainer, signalled: int | None) -> tuple[str, str, int]:
    """(status, reason, exit code) of a run that did not fail."""
    if signalled and not trainer.closed:
        return "preempted", f"{signal.Signals(signalled).name} received; saved", 128 + signalled
    goal = trainer.reason is not None and not trainer.reason.startswith("train.max_")
    return "stopped" if goal else "finished", trainer.reason or "", 0


def what_is_repeated(trainer: Trainer, folder: Path, checkpoints: list[int]) -> str:
    """From where a run that failed can go on; `checkpoints`: their steps, oldest first."""
    again = f"`rookery train --resume {folder}`"
    if not checkpoints:
        return f"There is no checkpoint yet: {again} begins again ({trainer.ticks} steps are repeated)."
    steps, more = trainer.ticks - checkpoints[-1], "" if trainer.whole else " and the round that failed"
    repeated = f"{steps} steps{more} are repeated" if steps or more else "nothing is repeated"
    return f"The last checkpoint is that of step {checkpoints[-1]}: {again} goes on from there ({repeated})."


def write_config(path: Path, config: Config) -> None:
    """The resolved config; it reloads to the same tree. One that is there (a resumed run) is replaced as a whole."""
    try:
        replace_file(path, write_text(config.dump()).encode())
    except OSError as error:
        raise CheckpointError(f"{path} could not be written: {error.strerror or error}.") from error
