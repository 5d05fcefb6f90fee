"""F6, F7, F8 where single envs are out of reach, with several agents and in vector engines: an error that
says where, or a new worker."""

import json
import os
import time

import pytest

from faults.commands import in_process
from faults.test_env_processes import alive
from rookery import Trainer, load_config
from rookery.core.errors import EnvError

pytestmark = pytest.mark.slow

COMMON = {
    "model.hidden": "[4]",
    "learning.mode": "eager",
    "env.num": "2",
    "train.max_steps": "192",
    "log.every_steps": "32",
    "log.sinks": "[]",
    "eval.at_end": "false",
    "eval.every_steps": "0",
    "env.faults.backoff_seconds": "0",
    "env.faults.step_seconds": "1.5",
    "env.faults.reset_seconds": "20",
    "algo.name": "ppo",
    "algo.rollout": "8",
}
ENVS = {
    "parallel": {"env.id": "faults.multi_envs:FaultyPairing", "env.api": "parallel", "players": "{one: {}, two: {}}"}
    | {"seats": "{left: one, right: two}"},
    "turns": {"env.id": "faults.multi_envs:FaultyVerdicts", "env.api": "turns", "players": "{one: {}}"},
    "vector": {"env.id": "faults.multi_envs:FaultyVector-v0", "env.engine": "native", "env.faults.reset_seconds": "2"},
}
POOL = {"pool": "process", "pool.workers": "2"}
kinds = pytest.mark.parametrize("kind", ENVS)


def words(kind, fault, marks="", **more):
    kwargs = f"{{fault: {fault}, when: 20, marks: '{marks}'}}"
    given = COMMON | ENVS[kind] | {"env.kwargs": kwargs} | more
    return [f"{key}={value}" for key, value in given.items()]


def named(kind):
    return "faults.multi_envs:FaultyVector-v0" if kind == "vector" else "env 0 of worker 0"


@kinds
@pytest.mark.parametrize("pool", [{}, POOL], ids=["local", "process"])
def test_an_env_that_raises_ends_the_run_with_its_place_and_cause(kind, pool):
    with (
        Trainer(load_config(overrides=words(kind, "raise", **pool))) as trainer,
        pytest.raises(EnvError, match="ValueError: the gripper is stuck") as caught,
    ):
        for _ in trainer:
            pass
    assert named(kind) in str(caught.value)
    assert ("Traceback of the worker" in str(caught.value)) == bool(pool)
    assert trainer.steps < 192


@kinds
def test_an_env_that_calls_sys_exit_ends_the_run_as_an_error_of_its_own(kind):
    with (
        Trainer(load_config(overrides=words(kind, "exit"))) as trainer,
        pytest.raises(EnvError, match="SystemExit: 0"),
    ):
        for _ in trainer:
            pass


@kinds
def test_an_env_that_hangs_in_the_process_of_the_run_ends_it_with_code_3_and_its_stack(kind, tmp_path):
    started = time.monotonic()
    done = in_process("train", *words(kind, "hang"), "--out", "run", folder=tmp_path)
    assert done.code == 3, done.err
    assert time.monotonic() - started < 60
    assert named(kind) in done.err
    assert "step has not returned for" in done.err
    rescue = "pool=process the worker" if kind == "vector" else "env.workers=subprocess such an env"
    assert f"with {rescue} is ended and renewed" in done.err
    assert "in strike" in done.err  # where it hangs
    told = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert told["status"] == "failed"
    assert named(kind) in told["reason"]


@kinds
@pytest.mark.parametrize("fault", ["hang", "kill"])
def test_in_a_pool_a_worker_whose_env_hangs_or_kills_it_is_replaced_and_no_step_is_lost_or_counted_twice(
    kind, fault, tmp_path
):
    with Trainer(load_config(overrides=words(kind, fault, tmp_path, **POOL))) as trainer:
        for _ in trainer:
            pass
        assert (tmp_path / "struck").exists()
        assert trainer.steps == 192
        assert sum(trainer.worker_steps) == 192
        assert trainer.pool.metrics()["pool/renewals"] == 1.0
        assert "pool worker" in trainer.exact()
        assert ("SIGKILL" if fault == "kill" else "exit code 3") in trainer.exact()
        pids = [pid for worker in trainer.pool.pids() for pid in worker]
    assert not any(alive(pid) for pid in pids if pid != os.getpid())
