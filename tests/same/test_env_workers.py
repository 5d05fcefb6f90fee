"""Envs in worker processes learn the same weights as envs in one process, also when a run
changes over in the middle."""

import os

import pytest

from rookery import Experiment, Trainer, load_config
from rookery.core.errors import CheckpointError
from selection import matrix_but

pytestmark = pytest.mark.slow

REPLAY = ["store.min_fill=40", "store.batch_size=16", "store.capacity=400"]
CASES = {
    "ppo": ["algo.rollout=8", "model.normalise_obs=true"],
    "impala": ["algo.rollout=8"],
    "appo": ["algo.rollout=8", "algo.epochs=2", "algo.minibatches=2"],
    "dqn": [*REPLAY, "store.priority={alpha: 0.7, beta: 0.5}", "algo.n_step=3"],
    "sac": [*REPLAY, "algo.warmup=20"],
    "r2d2": [
        *REPLAY,
        "algo.sequence=4",
        "algo.overlap=2",
        "algo.burn_in=2",
        "store.priority={alpha: 0.9, beta: 0.6}",
        "store.updates_per_step=0.25",
        "model.core={kind: gru, size: 8}",
    ],
}
COMMON = ["env.num=3", "model.hidden=[8]", "learning.mode=eager", "log.sinks=[]", "eval.num=2"]
MODES = {
    "inline": ["env.workers=inline"],
    "subprocess": ["env.workers=subprocess", "env.workers.processes=2", "env.workers.start=fork"],
}


def trainer_of(algo, mode, words=(), env=None):
    env = env or ("same.telling:TellingContinuous-v0" if algo == "sac" else "same.telling:Telling-v0")
    overrides = [*COMMON, "train.max_steps=600", *CASES[algo], *MODES[mode], *words]
    return Trainer(load_config(algo=algo, env=env, overrides=overrides))


def rounds(trainer, steps):
    while trainer.steps < steps:
        trainer.round()


def straight(algo, mode, steps, words=(), env=None):
    with trainer_of(algo, mode, words, env) as trainer:
        rounds(trainer, steps)
        pids = set(trainer.foreach_env("pid"))
        assert pids == ({os.getpid()} if mode == "inline" else set(trainer.pool.collectors[0].env.pids))
        assert trainer.exact() is True
        assert trainer.updates > 5
        return trainer.players.weights_sha256(), trainer.evaluate().returns


@pytest.mark.parametrize("algo", matrix_but(["ppo", "dqn", "sac", "r2d2"], "ppo", "dqn"))
def test_weights_are_the_same_in_every_mode_and_when_a_run_changes_over_in_the_middle(algo):
    expected = straight(algo, "inline", 240)
    assert straight(algo, "subprocess", 240) == expected
    for before, after in (("inline", "subprocess"), ("subprocess", "inline"), ("subprocess", "subprocess")):
        with trainer_of(algo, before) as first, trainer_of(algo, after) as second:
            rounds(first, 120)
            second.restore(first.state())
            rounds(second, 240)
            assert second.exact() is True
            assert (second.players.weights_sha256(), second.evaluate().returns) == expected


def test_pictures_and_dicts_go_through_shared_memory_also_stacked():
    words, env = ["env.stack=2", "model.convs=[[4, 4, 4]]"], "same.telling:Pictures-v0"
    assert straight("dqn", "inline", 120, words, env) == straight("dqn", "subprocess", 120, words, env)


def test_a_run_may_be_resumed_with_other_workers(tmp_path):
    def run(name, steps, mode, **more):
        words = [*COMMON, *CASES["ppo"], *MODES[mode], f"train.max_steps={steps}", "eval.episodes=2"]
        given = (
            {"resume": tmp_path / name, "overrides": words} if more else {"out": tmp_path / name, "overrides": words}
        )
        source = {} if more else {"algo": "ppo", "env": "same.telling:Telling-v0"}
        return Experiment(**source, **given).train().summary

    whole = run("whole", 240, "inline")
    half = run("changing", 120, "inline")
    assert half["workers"][0]["env_pids"] == []
    rest = run("changing", 240, "subprocess", resume=True)
    assert len(rest["workers"][0]["env_pids"]) == 2
    assert rest["resumed_from"] == [120]
    assert (rest["weights_sha256"], rest["exact"]) == (whole["weights_sha256"], True)


def test_a_run_with_the_numba_engine_cannot_change_over_and_says_so():
    with (
        trainer_of("dqn", "inline", env="CartPole-v1") as first,
        trainer_of("dqn", "subprocess", env="CartPole-v1") as second,
    ):
        rounds(first, 30)
        with pytest.raises(
            CheckpointError, match=r"another engine: resume with the env\.engine and env\.workers it began"
        ):
            second.restore(first.state())


@pytest.mark.parametrize("algo", ["dqn", "r2d2", "sac"])
def test_async_learns_from_whole_steps_and_stops_at_the_exact_count(algo, tmp_path):
    env = "same.telling:TellingContinuous-v0" if algo == "sac" else "same.telling:Telling-v0"
    words = [*COMMON, *CASES[algo], "env.workers={mode: async, start: fork, processes: 3}", "train.max_steps=151"]
    result = Experiment(algo=algo, env=env, overrides=[*words, "eval.episodes=2"], out=tmp_path / "run").train()
    assert (result.status, result.summary["steps"]) == ("finished", 151)
    assert result.summary["exact"] == "env.workers=async: which env answers first depends on the clock"
    assert result.summary["updates"] > 5
    assert len(result.summary["workers"][0]["env_pids"]) == 3
