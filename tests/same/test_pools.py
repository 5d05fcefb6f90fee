"""Collectors in other processes and on a Ray cluster: the same weights as in one process, also when a run
changes over in the middle."""

import os
import signal

import pytest

from rookery import Experiment, Trainer, load_config
from rookery.core.errors import ConfigError, EnvError
from rookery.core.system.cpus import cpu_quota
from rookery.run.callbacks.base import Callback
from same.test_env_workers import CASES
from same.test_env_workers import COMMON as WORDS
from selection import matrix_but

pytestmark = pytest.mark.slow

COMMON = [*WORDS[1:], "env.num=2"]
NAMED = ("ppo",)  # on Ray in every run of the tests


def trainer_of(algo, kind, *words, callbacks=()):
    env = "same.telling:TellingContinuous-v0" if algo == "sac" else "same.telling:Telling-v0"
    limit = [] if any(word.startswith("train.max_steps") for word in words) else ["train.max_steps=600"]
    overrides = [*COMMON, *limit, *CASES[algo], f"pool={kind}", "pool.workers=2"]
    return Trainer(load_config(algo=algo, env=env, overrides=[*overrides, *words]), callbacks=callbacks)


def rounds(trainer, steps):
    while trainer.steps < steps:
        trainer.round()


def result(trainer):
    assert trainer.exact() is True
    assert trainer.updates > 5
    return trainer.players.weights_sha256(), trainer.evaluate().returns, trainer.worker_steps


def straight(algo, kind, steps=240):
    with trainer_of(algo, kind) as trainer:
        rounds(trainer, steps)
        pids = trainer.foreach_env("pid")
        assert [pids[0], pids[2]] == [pid for pid, *_ in trainer.pool.pids()]
        assert len(set(pids)) == (1 if kind == "local" else 2)
        assert (os.getpid() in pids) == (kind == "local")
        return result(trainer)


@pytest.mark.parametrize(
    "algo", matrix_but(["ppo", "dqn", "sac", "r2d2", "impala", "appo"], "ppo", "dqn", "r2d2", "impala")
)
def test_processes_learn_the_same_weights_and_a_run_may_change_over_in_the_middle(algo):
    expected = straight(algo, "local")
    assert straight(algo, "process") == expected
    for before, after in (("local", "process"), ("process", "local"), ("process", "process")):
        with trainer_of(algo, before) as first, trainer_of(algo, after) as second:
            rounds(first, 120)
            second.restore(first.state())
            rounds(second, 240)
            assert result(second) == expected


@pytest.mark.slow
@pytest.mark.parametrize("algo", matrix_but(list(CASES), *NAMED))
def test_ray_learns_the_same_weights_with_a_resume_in_the_middle(algo, cluster):
    expected = straight(algo, "local")
    assert straight(algo, "ray") == expected
    with trainer_of(algo, "ray") as first, trainer_of(algo, "ray") as second:
        rounds(first, 120)
        second.restore(first.state())
        rounds(second, 240)
        assert result(second) == expected


def test_limits_of_steps_and_episodes_are_met_exactly_in_every_mode():
    for words in (["train.max_steps=203"], ["train.max_steps=null", "train.max_episodes=7"]):
        found = []
        for kind in ("local", "process"):
            with trainer_of("dqn", kind, *words) as trainer:
                for _ in trainer:
                    pass
                found.append((trainer.steps, trainer.episodes, trainer.players.weights_sha256()))
        assert found[0] == found[1]
        assert found[0][0 if "null" not in words[0] else 1] == (203 if "null" not in words[0] else 7)


def test_envs_of_a_pool_worker_may_have_processes_of_their_own():
    words = ["env.workers=subprocess", "env.workers.processes=2"]
    with trainer_of("ppo", "local") as one, trainer_of("ppo", "process", *words) as other:
        rounds(one, 64)
        rounds(other, 64)
        assert result(one)[0] == result(other)[0]
        assert all(len(pids) == 3 for pids in other.pool.pids())


def test_by_default_the_workers_of_a_pool_share_the_cpus_for_their_env_processes():
    with trainer_of("ppo", "process", "env.workers=subprocess") as trainer:
        trainer.round()
        each = min(max(1, cpu_quota() // 2), 2)
        assert [len(pids) for pids in trainer.pool.pids()] == [1 + each, 1 + each]  # itself, and those of its envs


def test_a_killed_worker_is_replaced_and_its_round_is_collected_again(caplog):
    with trainer_of("ppo", "process", "env.faults.backoff_seconds=0") as trainer:
        rounds(trainer, 64)
        victim = trainer.pool.pids()[1][0]
        os.kill(victim, signal.SIGKILL)
        rounds(trainer, 192)
        assert trainer.steps == 192
        assert trainer.worker_steps == [96, 96]
        assert trainer.pool.pids()[1][0] != victim
        assert "pool worker 1" in trainer.exact()
        assert "SIGKILL" in trainer.exact()
        assert trainer.pool.metrics()["pool/renewals"] == 1.0
    assert "another one takes its place" in caplog.text


def test_a_worker_that_always_dies_ends_the_run_with_its_cause():
    words = ["env.faults.backoff_seconds=0", "env.faults.renewals=2"]
    with trainer_of("ppo", "process", *words) as trainer:
        trainer.round()
        trainer.pool._links[0].collect = lambda orders: os.kill(trainer.pool._links[0].pid, signal.SIGKILL)
        real = trainer.pool._link

        def doomed(recipe):
            line = real(recipe)
            line.collect = lambda orders: os.kill(line.pid, signal.SIGKILL)
            return line

        trainer.pool._link = doomed
        with pytest.raises(EnvError, match=r"pool worker 0 .* was ended by SIGKILL.* 3 times in a row"):
            rounds(trainer, 1000)


def test_an_env_that_fails_for_ever_in_a_worker_ends_the_run_with_its_traceback():
    words = [
        "pool=process",
        "pool.workers=2",
        *COMMON,
        "env.faults.backoff_seconds=0",
        "env.kwargs={fault: raise, share: 1.0}",
    ]
    config = load_config(algo="ppo", env="faults.numbered:Numbered", overrides=[*words, "algo.rollout=8"])
    with Trainer(config) as trainer, pytest.raises(EnvError, match="the gripper is stuck") as caught:
        rounds(trainer, 100)
    assert "Traceback of the worker" in str(caught.value)


class Watcher(Callback):
    def episode_end(self, episode):
        raise AssertionError("never called")


def test_a_callback_that_wants_every_episode_is_refused_in_one_sentence():
    with pytest.raises(ConfigError, match=r"Watcher wants to hear of every episode, but with pool\.kind=process"):
        trainer_of("ppo", "process", callbacks=[Watcher()])


def test_the_summary_names_pool_and_processes(tmp_path):
    words = [
        *COMMON,
        *CASES["ppo"],
        "env.num=2",
        "train.max_steps=64",
        "pool=process",
        "pool.workers=2",
        "eval.episodes=2",
    ]
    told = Experiment(algo="ppo", env="same.telling:Telling-v0", overrides=words, out=tmp_path / "run").train().summary
    assert told["pool"] == "process"
    assert len({worker["pid"] for worker in told["workers"]} - {os.getpid()}) == 2
    assert [worker["steps"] for worker in told["workers"]] == [32, 32]
    for worker in told["workers"]:
        with pytest.raises(ProcessLookupError):
            os.kill(worker["pid"], 0)


@pytest.mark.slow
def test_a_killed_ray_actor_is_replaced(cluster):
    with trainer_of("ppo", "ray", "env.faults.backoff_seconds=0") as trainer:
        rounds(trainer, 64)
        os.kill(trainer.pool.pids()[1][0], signal.SIGKILL)
        rounds(trainer, 192)
        assert (trainer.steps, trainer.worker_steps) == (192, [96, 96])
        assert "pool worker 1" in trainer.exact()
