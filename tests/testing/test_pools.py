"""Every pool keeps the contract of pools, and a killed run that of resuming."""

from __future__ import annotations

import pytest

from rookery.testing.pool import PoolContract
from rookery.testing.resume import ResumeContract


class TestLocal(PoolContract): ...


@pytest.mark.slow
class TestThreeWorkers(PoolContract):
    workers, words = 3, ("pool=local", "pool.workers=3")


@pytest.mark.slow
class TestProcess(PoolContract):
    words = ("pool=process", "pool.workers=2")


@pytest.mark.matrix  # 12 s for the two actors of each test; `same` and `faults` have Ray in every run of the tests
@pytest.mark.usefixtures("cluster")
class TestRay(PoolContract):
    words = ("pool=ray", "pool.workers=2")


@pytest.mark.slow
class TestResume(ResumeContract):
    words = [
        *(
            "--algo=dqn",
            "--env=CartPole-v1",
            "env.num=2",
            "store.min_fill=100",
            "store.batch_size=32",
            "model.hidden=[16]",
        ),
        *("train.max_steps=3000", "checkpoint.every_steps=150", "log.every_steps=200", "log.sinks=[jsonl]"),
        *("learning.mode=eager", "eval.num=2", "eval.episodes=2"),
    ]
