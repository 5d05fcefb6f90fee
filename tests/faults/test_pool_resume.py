"""What a remote pool must still know after a resume: what envs were told, and why the run is no longer exact."""

import os
import signal

import pytest

from faults.commands import quick
from rookery import Trainer, load_config
from rookery.run.collect.collector import Collector

pytestmark = pytest.mark.slow


def trainer_of(kind, *words):
    own = ["train.max_steps=1000000", "env.num=2", "pool.workers=2", "env.faults.backoff_seconds=0", f"pool={kind}"]
    words = quick("ppo", *own, *words)[2:]
    return Trainer(load_config(algo="ppo", env="faults.numbered:Numbered", overrides=words))


def kill(trainer, worker):
    os.kill(trainer.pool.pids()[worker][0], signal.SIGKILL)


def test_after_a_resume_too_the_envs_of_a_new_worker_are_told_what_the_lost_ones_were():
    with trainer_of("local") as trainer:
        trainer.round()
        trainer.foreach_env("set_phase", 2)
        trainer.round()
        state = trainer.state()
    with trainer_of("process") as trainer:
        trainer.restore(state)
        trainer.round()
        kill(trainer, 0)
        trainer.round()
        assert trainer.pool.metrics()["pool/renewals"] == 1.0
        assert trainer.foreach_env("phase") == [2, 2, 2, 2]


def test_a_resumed_run_still_says_that_a_worker_was_lost_before():
    with trainer_of("process") as trainer:
        trainer.round()
        kill(trainer, 1)
        trainer.round()
        reason, state = trainer.exact(), trainer.state()
    assert "pool worker 1" in reason
    for kind in ("process", "local"):
        with trainer_of(kind) as trainer:
            trainer.restore(state)
            trainer.round()
            assert trainer.exact() == reason
            assert trainer.state()["pool"]["reason"] == reason


def test_callbacks_may_still_ask_the_envs_when_a_worker_was_lost_while_the_run_ends():
    with trainer_of("process") as trainer:
        trainer.round()
        trainer.pool.interrupted = lambda: "signal 15"
        kill(trainer, 1)
        trainer.round()
        assert trainer.foreach_env("set_phase", 3) == [trainer.pool.pids()[0][0]] * 2  # of the worker that is left
        assert trainer.foreach_worker(type) == [Collector]
        assert trainer.state()["pool"]["1"] is None


def test_a_run_may_go_back_to_its_checkpoint_though_it_ends_and_a_worker_is_lost_on_the_way():
    words = ["pool.mode=async", "algo.rollout=8"]
    overrides = [*words, "pool=process", "pool.workers=2", "env.num=2", "model.hidden=[4]", "learning.mode=eager"]
    with Trainer(load_config(algo="impala", env="faults.numbered:Numbered", overrides=overrides)) as trainer:
        trainer.round()
        state = trainer.state()
        trainer.round()
        trainer.pool.submit(trainer._messages(), trainer.rows)  # all of them have orders
        trainer.pool.interrupted = lambda: "signal 15"
        kill(trainer, 0)
        kill(trainer, 1)
        trainer.restore(state)
        assert trainer.state()["pool"] is state["pool"]
