"""Threads of the learner: the work of an update by hand, the choice, its record, and that acting has one."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery.acting.actor import Actor
from rookery.run import threads
from rookery.run.build import build_parts
from rookery.run.config.resolve import load_config
from rookery.run.evaluate import evaluate_run
from rookery.run.experiment import experiment
from rookery.run.experiment.experiment import Experiment
from rookery.run.machine import one_thread
from rookery.run.threads import GRAIN, thread_gain, threads_for, work_of

TINY = [
    "train.max_steps=300",
    "store.min_fill=100",
    "learning.mode=eager",
    "eval.episodes=2",
    "eval.num=2",
    "log.sinks=[]",
]


class Picture(gymnasium.Env):
    observation_space = spaces.Box(0, 255, (1, 10, 10), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros((1, 10, 10), np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.zeros((1, 10, 10), np.uint8), 0.0, True, False, {}


def work(algo: str, *overrides: str, env: str | None = "CartPole-v1", factory: Any = None) -> int:
    parts = build_parts(load_config(algo=algo, env=env, overrides=overrides), env=factory)
    parts.pool.close()
    return work_of(parts.players.main)


def test_the_work_of_a_perceptron_is_parameters_times_batch_three_times_and_once_for_the_target() -> None:
    # 4·64 + 64 + 64·64 + 64 + 64·2 + 2 = 4610 parameters
    assert work("dqn", "model.hidden=[64,64]", "store.batch_size=32") == 4 * 4610 * 32


def test_a_convolution_counts_once_per_pixel_of_its_output() -> None:
    # (1·9·2 + 2) · 8·8 pixels + 128·4 + 4 + 4·2 + 2 = 1806 per row
    overrides = ["model.convs=[[2,3,1]]", "model.hidden=[4]", "store.batch_size=8"]
    assert work("dqn", *overrides, env=None, factory=Picture) == 4 * 1806 * 8


def test_of_a_rollout_the_minibatch_counts() -> None:
    # policy 4610, value 4·64 + 64 + 64·64 + 64 + 64 + 1 = 4545; 32 · 8 / 4 = 64 rows; no target
    assert work("ppo", "algo.rollout=32", "env.num=8", "algo.minibatches=4") == 3 * (4610 + 4545) * 64


def test_of_a_memory_one_step_counts_and_of_the_rest_the_sequence() -> None:
    overrides = [
        "model.hidden=[3]",
        "model.core.kind=gru",
        "model.core.size=5",
        "algo.dueling=false",
        "store.batch_size=7",
    ]
    overrides += ["algo.sequence=8", "algo.overlap=4", "algo.burn_in=2", "algo.n_step=1"]
    rest, core = (4 * 3 + 3) + (5 * 2 + 2), (3 * 15 + 15) + (5 * 15 + 15)  # encoder and head; gates
    assert work("r2d2", *overrides) == 4 * (rest * 7 * 10 + core * 7)


def choice(quota: int, wanted: str = "auto", width: int = 64, batch: int = 64) -> threads.Threads:
    overrides = [f"run.threads={wanted}", f"model.hidden=[{width},{width}]", f"store.batch_size={batch}"]
    parts = build_parts(load_config(algo="dqn", env="CartPole-v1", overrides=overrides))
    parts.pool.close()
    return threads_for(parts.config, parts.players.values(), quota)


def test_a_small_update_gets_one_thread_on_any_machine() -> None:
    assert choice(64) == threads.Threads(
        1, "auto: 1.18 million multiply-adds per update, fewer than the 40 million from which two threads pay"
    )


def test_a_large_update_gets_what_its_work_is_worth_within_the_quota() -> None:
    # 256²: 4·256 + 256 + 256·256 + 256 + 256·2 + 2 = 67 586 parameters; · 4 · 256 rows = 69 208 064 = 3 · GRAIN + …
    assert 4 * 67_586 * 256 // GRAIN == 3
    assert choice(64, width=256, batch=256).count == 3
    assert choice(2, width=256, batch=256) == threads.Threads(
        2, "auto: 69.2 million multiply-adds per update, quota of 2 CPUs"
    )
    assert choice(1, width=256, batch=256) == threads.Threads(
        1, "auto: 69.2 million multiply-adds per update, quota of 1 CPU"
    )


def test_a_number_that_was_asked_for_is_taken_and_an_excess_is_said() -> None:
    assert choice(4, "2") == threads.Threads(2, "run.threads=2")
    assert choice(1, "2") == threads.Threads(2, "run.threads=2, more than the 1 CPUs of the quota")


@pytest.mark.parametrize(("work", "measured"), [(4_500_000, 0.93), (69_000_000, 1.39), (270_000_000, 1.7)])
def test_the_predicted_gain_is_near_what_was_measured(work: int, measured: float) -> None:
    assert thread_gain(work, 2) == pytest.approx(measured, abs=0.06)
    assert thread_gain(work, 1) == 1.0


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """Numbers of threads with which actors acted and learners learnt."""
    found: dict[str, set[int]] = {"act": set(), "learn": set()}
    act, step = Actor.act, experiment.Trainer._note

    def acting(self: Any, *args: Any, **kwargs: Any) -> Any:
        found["act"].add(torch.get_num_threads())
        return act(self, *args, **kwargs)

    def learning(self: Any, *args: Any) -> Any:
        found["learn"].add(torch.get_num_threads())
        return step(self, *args)

    monkeypatch.setattr(Actor, "act", acting)
    monkeypatch.setattr(experiment.Trainer, "_note", learning)
    return found


@pytest.mark.slow
def test_collectors_and_evaluations_act_with_one_thread_while_the_learner_has_two(seen: Any, tmp_path: Path) -> None:
    Experiment("cartpole-dqn", overrides=[*TINY, "store.batch_size=64", "run.threads=2"], out=tmp_path / "run").train()
    assert seen == {"act": {1}, "learn": {2}}
    evaluate_run(tmp_path / "run")
    assert seen["act"] == {1}
    assert torch.get_num_threads() == 1


def test_threads_are_recorded_with_the_reason(tmp_path: Path) -> None:
    overrides = [*TINY, "store.batch_size=64", "run.threads=auto"]
    result = Experiment("cartpole-dqn", overrides=overrides, out=tmp_path / "run").train()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["threads"], summary["threads_reason"]) == (1, result.summary["threads_reason"])
    assert summary["threads_reason"].startswith("auto: 4.46 million multiply-adds")  # 17 410 parameters · 4 · 64
    assert "learner threads: 1 (auto: 4.46 million" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.slow
def test_a_run_resumed_with_another_number_of_threads_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = [*TINY, "store.batch_size=64", "run.threads=auto"]
    Experiment("cartpole-dqn", overrides=overrides, out=tmp_path / "run").train()
    monkeypatch.setattr(threads, "GRAIN", 1_000_000)  # as if the machine were another one
    monkeypatch.setattr(threads, "cpu_quota", lambda: 2)
    with caplog.at_level(logging.WARNING):
        result = Experiment(resume=tmp_path / "run", overrides=["train.max_steps=400"]).train()
    assert result.summary["threads"] == 2
    assert result.summary["exact"] == "resumed with threads 1 (now 2)"
    assert "not bit for bit" in caplog.text


def test_one_thread_is_put_back_also_after_an_error() -> None:
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        with pytest.raises(ZeroDivisionError), one_thread():
            1 / 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
