"""F15, F16, F23 with collectors in other processes: killed at random moments; whatever is learnt from
is one step of one env, once."""

import gc
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faults.attacks import Killer, workers_killed
from faults.commands import command, environment, in_process, quick
from faults.numbered import Rows
from rookery import Trainer, load_config
from rookery.core.errors import EnvError
from selection import matrix_but

pytestmark = pytest.mark.slow

WORDS = ["train.max_steps=1000000", "env.num=2", "pool.workers=2", "env.faults.backoff_seconds=0"]


def trainer_of(kind, *words, algo="ppo"):
    return Trainer(
        load_config(
            algo=algo, env="faults.numbered:Numbered", overrides=quick(algo, *WORDS, f"pool={kind}", *words)[2:]
        )
    )


def watched(trainer):
    """Rows per worker, looked at as they are taken: numbered by their env, none twice, none linked wrongly."""
    found, take = [Rows(2), Rows(2)], trainer._store

    def look(worker, chunks):
        found[worker].take(chunks["main"])
        take(worker, chunks)

    trainer._store = look
    return found


def checked(trainer, found):
    assert [rows.count for rows in found] == [len(rows.seen) for rows in found] == trainer.worker_steps
    assert sum(trainer.worker_steps) == trainer.steps


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_steps_are_counted_exactly_once_though_workers_are_killed_at_random_moments(algo):
    with trainer_of("process", algo=algo) as trainer:
        found, rng = watched(trainer), random.Random(1)
        for _ in range(3):
            trainer.round()
        killer = Killer(trainer, rng, 0.15)
        killer.start()
        while trainer.pool.metrics().get("pool/renewals", 0) < 4:
            trainer.round()
        killer.over.set()
        killer.join()
        trainer.round()
        checked(trainer, found)
        assert killer.kills >= 4
        # a checkpoint is whole although its workers died on the way, and seeds are not those of before
        state = trainer.state()
    with trainer_of("process", algo=algo) as other:
        other.restore(state)
        take = other._store

        def look(worker, chunks):
            found[worker].take(chunks["main"])
            take(worker, chunks)

        other._store = look
        for _ in range(6):
            other.round()
        checked(other, found)


@pytest.mark.matrix
def test_steps_are_counted_exactly_once_on_ray_though_actors_are_killed(cluster):
    with trainer_of("ray") as trainer:
        found = watched(trainer)
        for _ in range(3):
            trainer.round()
        for times in range(2):
            os.kill(trainer.pool.pids()[times][0], signal.SIGKILL)
            for _ in range(3):
                trainer.round()
        checked(trainer, found)
        assert trainer.pool.metrics()["pool/renewals"] == 2.0


@pytest.mark.slow
def test_on_ray_an_env_that_raises_and_may_not_be_renewed_ends_the_run_with_its_cause(cluster):
    words = ["env.faults.renewals=0", "env.kwargs={fault: raise, when: 2}"]
    with trainer_of("ray", *words) as trainer, pytest.raises(EnvError, match="ValueError: the gripper is stuck"):
        trainer.round()


@pytest.mark.slow
def test_memory_descriptors_and_children_stay_flat_over_many_rounds_and_renewals():
    with trainer_of("process", "algo.rollout=8") as trainer:

        def rounds(times, kills):
            for n in range(times):
                if n % (times // kills) == 0:
                    os.kill(trainer.pool.pids()[n % 2][0], signal.SIGKILL)
                trainer.round()
            gc.collect()
            memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            return len(os.listdir("/proc/self/fd")), len(multiprocessing.active_children()), memory

        for _ in range(20):
            trainer.round()
        before, after = rounds(60, 4), rounds(120, 6)
        assert trainer.pool.metrics()["pool/renewals"] == 10.0
        assert after[:2] == before[:2]
        assert after[2] - before[2] < 8e6


@pytest.mark.parametrize("kind", matrix_but(["process", "ray"], "process"))
def test_a_worker_that_fails_for_ever_ends_the_command_with_code_3_and_its_cause(tmp_path, kind):
    changes = [*WORDS, f"pool={kind}", "env.faults.renewals=2", "env.kwargs={fault: kill, when: 2}"]
    words = command("train", "--env", "faults.numbered:Numbered", *quick("ppo", *changes), "--out", "run")
    more = {"capture_output": True, "text": True, "timeout": 200, "check": False}
    done = subprocess.run(words, cwd=tmp_path, env=environment(), **more)
    assert done.returncode == 3, done.stderr
    told = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (told["status"], told["steps"]) == ("failed", 0)
    for text in (done.stderr, told["reason"]):
        assert "pool worker" in text
        assert "3 times in a row (env.faults.renewals=2)" in text
        assert ("SIGKILL" if kind == "process" else "is gone") in text


@pytest.mark.matrix
def test_cartpole_is_learnt_though_workers_are_killed_all_the_time():
    # evaluated so late that a fast machine has no chance to be done before it was attacked; `make chaos` asks for 475
    told = workers_killed("process", 195, 0.5, every=16_384)
    assert told["reason"].startswith("eval/return_mean")
    assert told["kills"] >= told["renewals"] >= 2
    assert "pool worker" in told["exact"]


@pytest.mark.matrix
def test_cartpole_is_learnt_on_ray_though_nodes_come_and_go():
    more = {"capture_output": True, "text": True, "timeout": 280, "check": False}
    done = subprocess.run([sys.executable, "-m", "faults.attacks", "nodes", "200", "3"], env=environment(), **more)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["reason"].startswith("eval/return_mean")
    assert told["changes"] >= 2
    assert told["renewals"] >= 1


@pytest.mark.slow
def test_every_worker_of_a_pool_has_a_log_of_its_own(tmp_path):
    words = quick("ppo", "pool=process", "pool.workers=2", "train.max_steps=256", "log.sinks=[csv]")
    done = in_process("train", *words, "--env", "CartPole-v1", "--out", "run", folder=tmp_path)
    assert done.code == 0, done.err
    for worker in (0, 1):
        text = (tmp_path / "run" / f"log-worker-{worker}.txt").read_text()
        assert f"worker {worker} begins, process" in text
    assert "steps" in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0]
