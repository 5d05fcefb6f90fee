"""The doctor: predictions by hand, shares of envs made for it, what is measured and advised, and
that nothing is left behind."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery.core.errors import EnvError
from rookery.doctor import doctor, measure, suggestions
from rookery.doctor.doctor import Diagnosis, examine
from rookery.doctor.machine_notes import remarks
from rookery.doctor.measure import SHARES, open_trial
from rookery.doctor.suggestions import CANDIDATES, OTHER, Candidate, Finding, amdahl
from rookery.run.config.config import Config
from rookery.run.config.resolve import load_config

pytestmark = pytest.mark.slow

QUICK = ["learning.mode=eager", "eval.episodes=6", "eval.num=1"]
FILL = ["store.min_fill=32", "store.batch_size=16"]


class Easy(gymnasium.Env):
    """Ends after ten steps."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)
    seconds = 0.0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.left = 10
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        if self.seconds:
            time.sleep(self.seconds)
        self.left -= 1
        return np.zeros(3, np.float32), 1.0, self.left == 0, False, {}


class Slow(Easy):
    seconds = 0.01  # the rest of a step takes 0.2 ms, several times that where neighbours are busy


class Breaks(Easy):
    def step(self, action: Any) -> Any:
        raise RuntimeError("the cable is out")


def config(*overrides: str, algo: str = "dqn", env: str | None = None) -> Config:
    return load_config(algo=algo, env=env, overrides=[*QUICK, *overrides])


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(suggestions, "unavailable", lambda: "building takes longer than these tests may")


@pytest.fixture
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "cpu_quota", lambda: 2)


def of(found: Diagnosis, key: str) -> list[Any]:
    return [outcome for outcome in found.outcomes if any(text.startswith(key) for text in outcome.overrides)]


# --- predictions, by hand


def finding(quota: int = 2, mode: str = "eager", work: int = 0, **shares: float) -> Finding:
    return Finding(dict.fromkeys(SHARES, 0.0) | shares, mode, 1, quota, work)


def test_a_share_of_a_half_that_becomes_twice_as_fast_gains_a_third() -> None:
    assert amdahl({"env": 0.5, "update": 0.5}, {"env": 2.0}) == pytest.approx(4 / 3)
    assert amdahl({"env": 0.5, "update": 0.5}, {"env": 2.0, "update": 4.0}) == pytest.approx(1 / 0.375)


def test_each_change_is_predicted_from_the_share_it_works_on() -> None:
    c = config("env.engine=gymnasium", env="CartPole-v1")
    native = suggestions.native_engine(c, finding(env=0.8))
    assert native is not None
    assert native.predicted == pytest.approx(1 / (0.2 + 0.8 / 4))
    threads = suggestions.two_threads(c, finding(update=0.0, work=10**9))
    assert threads is not None
    assert threads.predicted == 1.0
    often = suggestions.fewer_evaluations(c, finding(eval=0.5))  # 50 % to 2 %: 25 times as seldom
    assert often is not None
    assert often.overrides == ("eval.every_steps=250000",)
    assert often.predicted == pytest.approx(1 / (0.5 + 0.5 / 25))


def test_changes_that_are_impossible_or_there_already_are_no_candidates() -> None:
    c = config("env.engine=native", env="CartPole-v1")
    assert suggestions.native_engine(c, finding(env=0.8)) is None
    assert suggestions.native_engine(config(env="CartPole-v1"), finding(env=0.8)) is None  # auto takes it by itself
    assert suggestions.native_engine(config(), finding(env=0.8)) is None  # a factory in Python
    assert suggestions.two_threads(c, finding(quota=1, update=1.0)) is None
    assert suggestions.one_thread(c, finding()) is None
    assert suggestions.fewer_checkpoints(c, finding(checkpoint=0.04)) is None
    assert suggestions.eager(c, finding()) is None


def test_more_envs_are_said_to_change_learning() -> None:
    more = suggestions.more_envs(config(env="CartPole-v1"), finding(act=0.5))
    assert more is not None
    assert more.overrides == ("env.num=4",)
    assert (more.effect, more.learns_the_same) == (OTHER, False)


# --- shares


def test_an_env_that_sleeps_is_found_and_threads_are_not_advised(two_cpus: None) -> None:
    found = examine(config(*FILL, "store.updates_per_step=0.1"), seconds=1.0, env=Slow)
    assert found.shares["env"] >= 0.8
    assert found.bound.startswith("env-bound")
    assert found.microseconds["env"] >= 10_000
    assert sum(found.shares.values()) == pytest.approx(1.0)
    (threads,) = of(found, "run.threads")
    assert not threads.advised
    assert threads.measured is None


def test_a_wide_network_is_found_and_threads_are_measured(two_cpus: None) -> None:
    wide = config("model.hidden=[512,512]", "store.batch_size=256", "store.min_fill=256", "eval.every_steps=0")
    found = examine(wide, seconds=1.0, env=Easy)
    assert found.bound.startswith("learner-bound")
    assert found.shares["update"] > 0.5
    assert found.shares["eval"] == 0.0
    (threads,) = of(found, "run.threads=2")
    assert threads.predicted > 1.2
    assert threads.measured > 0
    assert threads.resume == "exact → exact"
    assert threads.advised == (threads.measured > 1.05)
    assert torch.get_num_threads() == 1


def test_a_costly_evaluation_is_found_and_fewer_are_advised() -> None:
    often = config(*FILL, "eval.every_steps=2", "store.updates_per_step=0.1")
    found = examine(often, seconds=2.0, env=Easy)
    assert found.shares["eval"] > 0.3
    (fewer,) = [outcome for outcome in of(found, "eval.every_steps") if len(outcome.overrides) == 1]
    assert fewer.advised
    assert fewer.predicted > 1.3


def test_whole_rollouts_are_measured_however_short_the_time() -> None:
    c = config("algo.rollout=16", "env.num=2", "algo.epochs=3", "algo.minibatches=2", algo="ppo", env="CartPole-v1")
    one = open_trial(c, Path.cwd())
    one.run(0.001)
    assert one.updates_per_step() == pytest.approx(6 / 32)
    assert set(one.costs()) == set(SHARES)
    one.close()


def test_the_limits_of_the_config_do_not_end_a_trial_and_its_mode_is_that_of_the_whole_run() -> None:
    c = load_config(
        algo="dqn",
        env="CartPole-v1",
        overrides=[*FILL, "train.max_steps=40", "train.max_updates=7", "train.stop={eval/return_mean: 1}"],
    )
    one = open_trial(c, Path.cwd())
    one.run(0.3)
    one.time_seldom(patience=1.0)
    assert one.trainer.steps > 40
    assert one.trainer.updates > 7
    assert one.trainer.players.modes() == {"main": "eager"}  # 7 updates are not worth compiling
    assert one.saved is not None
    assert one.saved[0] > 1000
    one.close()


def test_a_candidate_that_cannot_be_built_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    impossible = lambda c, f: Candidate(("env.engine=native",), 2.0, "same learning")  # noqa: E731
    monkeypatch.setattr(doctor, "CANDIDATES", (impossible,))
    assert examine(config(*FILL, env="MountainCarContinuous-v0", algo="sac"), seconds=0.2).outcomes == []


def test_what_changes_learning_is_told_and_never_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = lambda c, f: Candidate(("store.updates_per_step=0.05",), 5.0, OTHER)  # noqa: E731
    monkeypatch.setattr(doctor, "CANDIDATES", (fewer,))
    (outcome,) = examine(config(*FILL, env="CartPole-v1"), seconds=1.0).outcomes
    assert outcome.measured > 1.5
    assert (outcome.advised, outcome.why_not) == (False, OTHER)


def test_several_advised_changes_are_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    one = lambda c, f: Candidate(("store.updates_per_step=0.05",), 5.0, "same learning")  # noqa: E731
    two = lambda c, f: Candidate(("model.hidden=[4]",), 2.0, "same learning")  # noqa: E731
    monkeypatch.setattr(doctor, "CANDIDATES", (one, two))
    wide = config("store.min_fill=256", "store.batch_size=256", "model.hidden=[512,512]", env="CartPole-v1")
    found = examine(wide, seconds=2.0).outcomes
    assert [len(outcome.overrides) for outcome in found].count(2) == 1


def test_the_list_of_candidates_is_open() -> None:
    assert len(set(CANDIDATES)) == len(CANDIDATES)


# --- nothing is left


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    examine(config(*FILL, "run.out=deep/down", env="CartPole-v1"), seconds=0.2)
    assert list(tmp_path.iterdir()) == []


def test_an_env_that_raises_is_the_ordinary_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="the cable is out"):
        examine(config(*FILL), seconds=0.2, env=Breaks)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, seconds: float) -> None:
        assert list(tmp_path.iterdir()) != []
        raise KeyboardInterrupt

    monkeypatch.setattr(measure.Trial, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        examine(config(*FILL, env="CartPole-v1"), seconds=0.2)
    assert list(tmp_path.iterdir()) == []


# --- remarks


def test_remarks_name_what_slows_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"loadavg": "7.25 1 1 2/3 4", "self/status": "Name: x\nVmSwap:\t  20480 kB\n"}.items():
        (tmp_path / "proc" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc" / name).write_text(text)
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    told = "\n".join(remarks(config("log.level=DEBUG"), 2, (1_000_000, 0.5), tmp_path))
    for words in (
        "load 7.2 on 2 CPUs",
        "20 MB",
        "2 of the machine's 64 CPUs",
        "NUMBA_DISABLE_JIT",
        "DEBUG",
        "1.0 MB took 0.5 s",
    ):
        assert words in told


def test_a_quiet_whole_machine_has_no_remarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.doctor.machine_notes.unavailable", lambda: None)
    monkeypatch.setattr("sys.gettrace", lambda: None)
    assert remarks(config(), os.cpu_count() or 1, (1_000_000, 0.01), tmp_path) == []


def test_a_diagnosis_is_json() -> None:
    found = examine(config(*FILL, env="CartPole-v1"), seconds=0.2)
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()


def test_several_players_are_tried_too() -> None:
    from run.test_players import TURNS

    found = examine(load_config(tree=TURNS), seconds=0.2)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert found.mode == "eager"
