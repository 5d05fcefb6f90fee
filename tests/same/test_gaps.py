"""Chunks that are not learnt from leave a gap: what was stored before it is never linked to what comes after it."""

import os
import signal

import numpy as np
import pytest

from rookery import Trainer, load_config

pytestmark = pytest.mark.slow

WORDS = [
    "model.hidden=[4]", "learning.mode=eager", "env.num=2", "pool.workers=2", "train.max_steps=100000",
    "store.min_fill=64",
    "store.batch_size=64", "store.capacity=4000", "algo.rollout=5", "eval.at_end=false",
]  # fmt: skip
ASYNC = ["pool=process", "pool.mode=async"]


def trainer_of(*words):
    return Trainer(load_config(algo="dqn", env="faults.numbered:Numbered", overrides=[*WORDS, *words]))


def until(trainer, steps):
    while trainer.steps < steps:
        trainer.round()


def linked(store):
    """Observations are (env, number of the seed, steps of the episode): every step is followed
    by the next one of its own."""
    for _ in range(60):
        batch, _ = store.sample()
        obs, after = batch["obs"].numpy(), batch["next_obs"].numpy()
        np.testing.assert_array_equal(after, obs + [0, 0, 1])


def test_a_chunk_that_is_too_old_is_not_bridged():

    with trainer_of(*ASYNC, "pool.max_lag=1", "store.updates_per_step=0.5") as trainer:
        until(trainer, 600)
        assert trainer.lags.dropped > 50
        assert trainer.store.size > 100
        linked(trainer.store)


@pytest.mark.parametrize("kind", [ASYNC, ["pool=local"], ["pool=process"]])
def test_chunks_that_waited_at_a_checkpoint_are_not_bridged_by_the_resumed_run(kind):
    with trainer_of(*ASYNC) as trainer:
        until(trainer, 200)
        state = trainer.state()
        assert trainer.pool.waiting
    with trainer_of(*kind) as trainer:
        trainer.restore(state)
        until(trainer, 600)
        linked(trainer.store)


def test_a_round_that_was_dropped_when_the_run_ended_is_not_bridged_by_the_resumed_run():
    with trainer_of("pool=process", "store.updates_per_step=0.05") as trainer:
        until(trainer, 200)
        steps, trainer.pool.interrupted = trainer.steps, lambda: "signal 15"
        os.kill(trainer.pool.pids()[1][0], signal.SIGKILL)
        trainer.round()
        assert trainer.steps == steps  # nothing of it was counted
        state = trainer.state()
        assert state["pool"]["1"] is None
    with trainer_of("pool=local") as trainer:
        trainer.restore(state)
        until(trainer, 600)
        linked(trainer.store)
