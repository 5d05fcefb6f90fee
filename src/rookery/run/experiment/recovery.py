"""Going back to the last checkpoint within a run: after a divergence, or when one of several learners is lost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rookery.core.errors import Diverged, LearnerLost
from rookery.run.checkpoints.checkpoints import Checkpoint

if TYPE_CHECKING:
    from rookery.run.experiment.experiment import Experiment

log = logging.getLogger("rookery.run")


def roll_back(run: Experiment, error: Diverged) -> None:
    """Return to the last good checkpoint and skip ahead in the samplers' streams, so that it does not repeat bit for bit."""
    checkpoint = run.checkpoints.latest() if run.config.sentinel.on_nan == "rollback" else None
    run.rollbacks += 1
    times, limit = run.rollbacks, run.config.sentinel.rollbacks
    if checkpoint is None or times > limit:
        raise error
    log.warning("%s Going back to step %d (%d of %d).", error, checkpoint.manifest.step, times, limit)
    _take(run, checkpoint)
    for player in run.trainer.players.values():
        for name in ("store", "learn"):
            player.streams.numpy(name).random(1000 * times)
    run.inexact = f"went back to an earlier checkpoint after a divergence, {times} time(s)"


def start_again(run: Experiment, error: LearnerLost) -> None:
    """All learners from the last checkpoint: as after a resume, bit for bit what an undisturbed run does."""
    checkpoint, limit = run.checkpoints.latest(), run.config.learning.restarts
    if checkpoint is None:
        raise error
    step, times = run.restarts
    run.restarts = (checkpoint.manifest.step, times + 1 if step == checkpoint.manifest.step else 1)
    if run.restarts[1] > limit:
        raise LearnerLost(
            f"{error} That was {run.restarts[1]} times in a row from step {checkpoint.manifest.step} (learning.restarts={limit}). "
            "`rookery train --resume` goes on from there."
        ) from error
    log.warning("%s All learners start again from step %d.", error, checkpoint.manifest.step)
    _take(run, checkpoint)


def _take(run: Experiment, checkpoint: Checkpoint) -> None:
    saved = checkpoint.load()
    run.trainer.restore(saved)
    run.sinks.restore(saved["experiment"]["sinks"])
