"""Asynchronous pools: nothing is lost or counted twice, lag is measured and bounded, limits are met."""

import itertools
import os
import signal
import time
from types import SimpleNamespace

import pytest

from rookery import Trainer, load_config
from rookery.core.errors import ConfigError
from rookery.run.config.sections import PoolConfig
from rookery.run.limits import Lags
from same.test_pools import COMMON, rounds

pytestmark = pytest.mark.slow

DQN = ["store.min_fill=40", "store.batch_size=16", "store.capacity=2000", "algo.rollout=8"]
IMPALA = ["algo.rollout=8"]


def trainer_of(algo, words, *more, kind="process"):
    overrides = [*COMMON, f"pool={kind}", "pool.workers=2", "pool.mode=async", *words, *more]
    return Trainer(load_config(algo=algo, env="same.telling:Telling-v0", overrides=overrides))


@pytest.mark.parametrize(("algo", "words"), [("dqn", DQN), ("impala", IMPALA)])
def test_a_run_ends_exactly_at_its_limit_and_says_how_old_its_data_were(algo, words):
    with trainer_of(algo, words, "train.max_steps=603", "log.every_steps=100") as trainer:
        told = [progress.metrics for progress in trainer]
        assert trainer.steps == sum(trainer.worker_steps) == 603
        assert trainer.updates > 5
        assert all(steps > 0 for steps in trainer.worker_steps)
        assert "depends on timing" in trainer.exact()
        assert told[-1]["pool/dropped_steps"] >= 0
        assert any(line.get("pool/lag_max", 0) >= 0 for line in told)
        if algo == "dqn":
            assert trainer.store.counts()["inserts"] == 603  # a replay drops nothing that is not too old


CHUNK = SimpleNamespace(steps=8)


def test_chunks_that_are_too_old_or_crowded_are_dropped_and_counted():
    lags = Lags(PoolConfig(kind="process", mode="async", workers=2, max_lag=3))
    assert lags.admits(0, CHUNK)
    assert lags.admits(3, CHUNK)
    assert not lags.admits(4, CHUNK)
    assert lags.admits(1, CHUNK, newer=4)
    assert not lags.admits(1, CHUNK, newer=5)  # more than two per worker wait behind it
    # mean of 0, 3 and 1; the second report has nothing to tell but what was dropped
    assert lags.report() == {"pool/dropped_steps": 16.0, "pool/lag_mean": 4 / 3, "pool/lag_max": 3.0}
    assert lags.report() == {"pool/dropped_steps": 16.0}


def test_in_rounds_nothing_is_dropped_and_nothing_said():
    lags = Lags(PoolConfig(kind="process", workers=2, max_lag=0))
    assert lags.admits(10, CHUNK, newer=100)
    assert lags.report() == {}


def test_workers_that_are_too_far_ahead_wait_so_that_the_ratio_of_updates_and_steps_is_kept():
    with trainer_of("dqn", DQN, "train.max_steps=800", "pool.ahead=1", "store.updates_per_step=0.5") as trainer:
        rounds(trainer, 700)
        owed = 0.5 * (trainer.steps - 40) - trainer.updates
        assert owed <= 0.5 * (2 + 2) * 16  # of two waiting chunks, and of two that were under way
        for _ in trainer:
            pass
        assert trainer.steps == 800


def test_chunks_that_wait_and_updates_that_are_owed_count_together_when_workers_are_held_back(monkeypatch):
    with trainer_of("dqn", DQN, "pool.ahead=1", "store.updates_per_step=0.5") as trainer:
        monkeypatch.setattr(type(trainer.store), "ready", lambda _: True)
        monkeypatch.setattr(type(trainer.store), "owed", 32.0)  # steps: of two chunks of 16, one per worker
        assert not trainer._ahead()
        monkeypatch.setattr(type(trainer.pool), "waiting", 1)
        assert trainer._ahead()
        monkeypatch.setattr(type(trainer.store), "owed", 16.0)
        assert not trainer._ahead()


def test_workers_are_not_held_back_for_updates_that_wait_for_their_steps():
    starved = ["store.updates_per_step=0.5", "store.max_reuse=1"]  # a step is drawn once, but 8 draws are owed for it
    with trainer_of("dqn", DQN, "pool.ahead=1", *starved, "train.max_steps=400") as trainer:
        end = time.monotonic() + 60
        while trainer.steps < 400:
            trainer.round()
            assert time.monotonic() < end, "workers and learner wait for one another"


def test_time_in_which_workers_step_during_updates_is_not_counted_twice():
    with trainer_of("impala", IMPALA, "train.max_steps=603") as trainer:
        ticks = itertools.count(1)
        trainer.pool.times = lambda: (next(ticks) * 10**10, 0)  # ten seconds of stepping between any two looks
        rounds(trainer, 100)
        spent = trainer.meters.phases.seconds()
        assert min(spent.values()) >= 0
        assert spent["env"] > 0


def test_a_killed_worker_is_replaced_while_the_other_goes_on():
    with trainer_of("impala", IMPALA, "train.max_steps=2000", "env.faults.backoff_seconds=0") as trainer:
        rounds(trainer, 200)
        os.kill(trainer.pool.pids()[1][0], signal.SIGKILL)
        for _ in trainer:
            pass
        assert trainer.steps == sum(trainer.worker_steps) == 2000
        assert trainer.pool.metrics()["pool/renewals"] == 1.0


def test_a_checkpoint_of_an_asynchronous_run_can_be_resumed():
    with (
        trainer_of("dqn", DQN, "train.max_steps=400") as first,
        trainer_of("dqn", DQN, "train.max_steps=400") as second,
    ):
        rounds(first, 200)
        second.restore(first.state())
        assert second.steps == first.steps
        for _ in second:
            pass
        assert second.steps == 400


@pytest.mark.parametrize(
    ("algo", "words", "told"),
    [
        ("impala", ["pool.mode=async"], "needs workers elsewhere, but pool.kind=local"),
        (
            "ppo",
            ["pool=process", "pool.mode=async"],
            "older weights, for which algo.name=ppo does not correct. Use impala or appo",
        ),
        ("dqn", ["pool=ray", "pool.mode=async", "train.max_episodes=5"], "train.max_episodes is counted exactly"),
    ],
)
def test_what_cannot_be_asynchronous_is_refused(algo, words, told):
    with pytest.raises(ConfigError, match=told):
        load_config(algo=algo, env="CartPole-v1", overrides=words)


@pytest.mark.matrix
def test_ray_is_asynchronous_too(cluster):
    with trainer_of("impala", IMPALA, "train.max_steps=600", kind="ray") as trainer:
        for _ in trainer:
            pass
        assert trainer.steps == sum(trainer.worker_steps) == 600
        assert all(steps > 0 for steps in trainer.worker_steps)
