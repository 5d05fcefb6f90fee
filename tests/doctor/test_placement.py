"""The doctor on where work is done: predictions by hand, and real trials of envs that sleep,
a heavy network and CartPole."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rookery.doctor import doctor, placement, suggestions
from rookery.doctor.doctor import Diagnosis, Outcome, examine
from rookery.doctor.env_timing import Watch, step_alone
from rookery.doctor.machine_notes import idle_seconds
from rookery.doctor.measure import SHARES, open_trial
from rookery.doctor.placement import handing_round, handing_row, useful
from rookery.doctor.suggestions import OTHER, SAME, Finding
from rookery.run.config.config import Config
from rookery.run.config.resolve import load_config

QUICK = ["learning.mode=eager", "eval.every_steps=0", "log.sinks=[]"]
FILL = ["store.min_fill=32", "store.batch_size=16", "store.updates_per_step=0.1"]


def config(*overrides: str, algo: str = "dqn", env: str = "doctor.doctor_envs:Sleeps") -> Config:
    return load_config(algo=algo, env=env, overrides=[*QUICK, *overrides])


def finding(computing: float, row: float, quota: int = 2, rows: int = 1, **shares: float) -> Finding:
    """`row`: nanoseconds for 4 envs, which are all the time but for the other shares."""
    own = dict.fromkeys(SHARES, 0.0) | shares
    step = row / 4 / own["env"]
    return Finding(own, "eager", 1, quota, 10**6, step, 0.1, rows, row, computing)


# --- predictions, by hand


@pytest.mark.parametrize(
    ("most", "computing", "quota", "collectors", "expected"),
    [
        (8, 0.0, 2, 1, 8),
        (8, 1.0, 2, 1, 2),
        (8, 0.5, 2, 1, 4),
        (8, 1.0, 2, 2, 1),
        (2, 1.0, 64, 1, 2),
        (1000, 0, 2, 1, 64),
    ],
)
def test_as_many_processes_help_as_the_cpus_can_feed(
    most: int, computing: float, quota: int, collectors: int, expected: int
) -> None:
    assert useful(most, finding(computing, 4e7, quota, env=1.0), collectors) == expected


def test_sleep_is_shared_by_all_processes_and_computing_by_the_cpus() -> None:
    c = config("env.num=4")
    sleeps = placement.env_workers(c, finding(0.0, 4e7, env=1.0))  # 4 × 10 ms, one after the other
    assert sleeps is not None
    assert sleeps.overrides == ("env.workers=subprocess", "env.workers.processes=4")
    assert sleeps.predicted == pytest.approx(4e7 / (1e7 + handing_row(4)))
    computes = placement.env_workers(c, finding(1.0, 4e7, env=0.5, update=0.5))
    assert computes is not None
    assert computes.overrides[1] == "env.workers.processes=2"  # the quota, though there are four envs
    assert computes.predicted == pytest.approx(1 / (0.5 + 0.5 * (2e7 + handing_row(2)) / 4e7))
    assert computes.effect == SAME
    three = config("env.num=3")  # two processes: one has two envs
    found = placement.env_workers(
        three, Finding(dict.fromkeys(SHARES, 0.0) | {"env": 1.0}, "eager", 1, 2, 0, 1e7, 0, 1, 3e7, 1.0)
    )
    assert found is not None
    assert found.predicted == pytest.approx(3e7 / (2e7 + handing_row(2)))


def test_quick_envs_lose_in_processes_and_gain_in_one() -> None:
    quick = finding(1.0, 4e4, env=0.5, update=0.5)  # 40 µs for all four
    found = placement.env_workers(config("env.num=4"), quick)
    assert found is not None
    assert found.predicted == pytest.approx(1 / (0.5 + 0.5 * (2e4 + handing_row(2)) / 4e4))
    assert found.predicted < 0.5
    assert "handing it to 2 processes about 160 µs" in found.note
    there = config("env.num=4", "env.workers=subprocess", "env.workers.processes=2")
    slow = Finding(quick.shares, "eager", 1, 2, 0, 2 * 2e5 / 4, 0.1, 1, 4e4, 1.0)  # a row takes 200 µs there
    back = placement.inline_envs(there, slow)
    assert back is not None
    assert back.overrides == ("env.workers=inline",)
    assert back.predicted == pytest.approx(1 / (0.5 + 0.5 * 4e4 / 2e5))


def test_one_env_that_sleeps_is_told_to_have_company_which_changes_learning() -> None:
    shares = dict.fromkeys(SHARES, 0.0) | {"env": 1.0}
    found = placement.several_envs(config(), Finding(shares, "eager", 1, 2, 0, 1e7, 0.1, 1, 1e7, 0.0))
    assert found is not None
    assert found.overrides == ("env.num=8", "env.workers=subprocess", "env.workers.processes=8")
    assert found.predicted == pytest.approx(8 * 1e7 / (1e7 + handing_row(8)))
    assert not found.learns_the_same
    assert placement.several_envs(config("env.num=4"), finding(0.0, 4e7, env=1.0)) is None
    quick = placement.several_envs(
        config(), Finding(shares, "eager", 1, 2, 0, 1e4, 0.1, 1, 1e4, 1.0)
    )  # 10 µs of computing
    assert quick is not None
    assert quick.predicted == pytest.approx(2 * 1e4 / (1e4 + handing_row(2)))


def test_a_pool_has_the_same_envs_in_all_and_hands_over_once_a_round() -> None:
    found = placement.process_pool(config("env.num=4"), finding(0.0, 4e7, rows=8, env=0.8, act=0.1, update=0.1))
    assert found is not None
    assert found.overrides == ("pool=process", "pool.workers=4", "env.num=1")
    step = 1e7 / 0.8
    act = 0.1 * step * 2  # four workers choose on two CPUs, each as often as one did for all
    assert found.predicted == pytest.approx(step / (0.1 * step + 1e7 / 4 + act + handing_round(4) / 32))
    several = placement.process_pool(config("pool.workers=2", "env.num=2"), finding(1.0, 4e7, env=1.0))
    assert several is not None
    assert several.overrides == ("pool=process",)
    assert "bit for bit" in several.note


def test_asynchronous_pools_are_considered_only_where_the_algorithm_allows_it_and_never_advised() -> None:
    f = finding(0.0, 4e7, rows=8, env=0.5, update=0.5)
    for algo in ("dqn", "impala", "appo"):
        found = placement.asynchronous(config("env.num=4", algo=algo), f)
        assert found is not None
        assert found.overrides[-2:] == ("pool.mode=async", "pool.ahead=1")
        assert found.effect == OTHER
        assert found.predicted == pytest.approx(2.0)  # learning alone: collecting hides behind it
    for algo in ("ppo", "a2c"):
        assert placement.asynchronous(config("env.num=4", algo=algo), f) is None
    assert placement.asynchronous(config("train.max_episodes=9", "env.num=4"), f) is None


def test_learners_halve_a_large_update_and_slow_a_small_one_down() -> None:
    shares = dict.fromkeys(SHARES, 0.0) | {"update": 1.0}
    large = placement.two_learners(config(), Finding(shares, "eager", 1, 2, 10**9, 1e8, 1.0))  # 100 ms
    assert large is not None
    assert large.predicted == pytest.approx(100 / 51.5)
    small = placement.two_learners(config(), Finding(shares, "eager", 1, 2, 10**6, 1e6, 1.0))  # 1 ms
    assert small is not None
    assert small.predicted == pytest.approx(1 / 2)
    assert placement.two_learners(config(), Finding(shares, "eager", 1, 1, 10**9, 1e8, 1.0)) is None
    assert (
        placement.two_learners(config("learning.learners=2"), Finding(shares, "eager", 1, 2, 10**9, 1e8, 1.0)) is None
    )


def test_what_cannot_be_stepped_in_processes_or_is_so_already_is_no_candidate() -> None:
    f = finding(0.0, 4e7, env=1.0)
    assert placement.env_workers(config(), f) is None  # one env
    assert placement.env_workers(config("env.num=4", "env.engine=native", env="CartPole-v1"), f) is None
    assert placement.env_workers(config("env.num=4", "env.workers=subprocess", "env.workers.processes=4"), f) is None
    assert placement.inline_envs(config(), f) is None
    assert placement.local_pool(config(), f) is None


def test_a_loaded_machine_is_not_taken_for_sleep() -> None:
    watch = Watch(lambda: None)
    watch.calls, watch.wall, watch.computing = 10, 1000, 400  # 400 computing, as long again waiting for a CPU
    row = watch.row(waited=1.0)
    assert (row.nanoseconds, row.computing) == (100.0, pytest.approx(400 / 600))
    assert watch.row(waited=9.0).computing == 1.0


def test_changes_that_use_the_same_cpus_are_not_joined() -> None:
    def advised(*overrides: str) -> Outcome:
        return Outcome(list(overrides), 2.0, SAME, "", 2.0, advised=True)

    workers, pool = advised("env.workers=subprocess", "env.workers.processes=2"), advised("pool=process")
    assert doctor._rivals(workers, pool)
    assert doctor._rivals(advised("learning.learners=2"), advised("run.threads=2"))
    assert doctor._rivals(advised("run.threads=1"), advised("run.threads=2"))
    assert not doctor._rivals(workers, advised("learning.learners=2"))
    assert not doctor._rivals(advised("pool.workers=2"), advised("poolside=2"))


@pytest.mark.parametrize(
    ("overrides", "idle", "predicted", "told"),
    [
        (("learning.learners=2",), 0.1, 1.9, "for other work leaves 0.1 CPUs free now; try it on a quiet machine"),
        (("learning.learners=2",), 0.9, 1.9, "measured 0.94 ×"),  # a CPU was free, and it did not help
        (("learning.learners=2",), None, 1.9, "measured 0.94 ×"),
        (("learning.learners=2",), 0.1, 1.1, "measured 0.94 ×"),
        (("learning.mode=compiled",), 0.1, 1.9, "measured 0.94 ×"),  # needs no further CPU
    ],
)
def test_what_needs_cpus_that_others_have_is_not_said_to_be_useless(
    overrides: tuple[str, ...], idle: float | None, predicted: float, told: str
) -> None:
    trial: Any = SimpleNamespace(idle=idle, per_step=lambda: 1.0, setup_seconds=0.0)
    outcome = Outcome(list(overrides), predicted, SAME, "", measured=0.94)
    doctor._judge(outcome, suggestions.Candidate(overrides, predicted, SAME), config(), trial, trial)
    assert (outcome.why_not, outcome.advised) == (told, False)


def test_idle_cpus_are_read_from_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text("cpu  10 20 30 400 50 0 0 0 0 0\ncpu0 1 2 3 4 5\n")
    assert idle_seconds(tmp_path) == pytest.approx(450 / os.sysconf("SC_CLK_TCK"))
    assert idle_seconds(tmp_path / "nowhere") is None


# --- real trials


@pytest.fixture
def two_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(suggestions, "unavailable", lambda: "building takes longer than these tests may")
    monkeypatch.setattr(doctor, "cpu_quota", lambda: 2)


def of(found: Diagnosis, *overrides: str) -> Any:
    """What came of the change that begins with these, and is not asynchronous."""
    rounds = [o for o in found.outcomes if "pool.mode=async" not in o.overrides]
    (outcome,) = [o for o in rounds if tuple(o.overrides[: len(overrides)]) == overrides]
    return outcome


@pytest.mark.slow
def test_sleeping_is_told_from_computing(two_cpus: None, tmp_path: Path) -> None:
    for env, least, most, nanoseconds in (("Sleeps", 0.0, 0.2, 2e7), ("Computes", 0.4, 1.0, 1e7)):
        one = open_trial(config(*FILL, "env.num=2", env=f"doctor.doctor_envs:{env}"), tmp_path / env)
        try:
            row = step_alone(one.trainer, None, seconds=0.5)
            assert least <= row.computing <= most
            assert row.nanoseconds >= nanoseconds  # two envs, one after the other
        finally:
            one.close()


@pytest.mark.slow
def test_an_env_that_sleeps_is_the_bottleneck_and_workers_are_advised(two_cpus: None, tmp_path: Path) -> None:
    started = time.monotonic()
    found = examine(config(*FILL, "env.num=4"), seconds=8.0)
    assert time.monotonic() - started < 60
    assert found.bottleneck == "env"
    assert found.env_computing < 0.2
    workers = of(found, "env.workers=subprocess")
    assert workers.overrides[1] == "env.workers.processes=4"  # two CPUs, but sleep needs none
    assert doctor.PROMISING < workers.predicted < 5  # 4 where nothing else runs; the equation itself is tested above
    assert workers.measured > doctor.WORTH
    assert workers.advised
    assert workers.resume == "exact → exact"
    assert not of(found, "learning.learners=2").advised
    assert [path for path in tmp_path.iterdir() if "rookery" in path.name] == []


@pytest.mark.matrix
def test_a_heavy_network_is_the_bottleneck_and_more_actors_are_said_to_gain_nothing(two_cpus: None) -> None:
    words = ["model.hidden=[1024,1024,1024]", "store.batch_size=1024", "store.min_fill=1024", "env.num=4"]
    started = time.monotonic()
    found = examine(config(*words, env="doctor.doctor_envs:Plain"), seconds=8.0)
    assert time.monotonic() - started < 60
    assert found.bottleneck == "learner"
    assert "more actors (pool, env.workers) gain at most 1.0" in found.bound
    tried = [of(found, "learning.learners=2"), of(found, "run.threads=2")]
    for outcome in tried:
        assert outcome.predicted > 1.3
        if outcome.measured is not None:  # else the time was over, which is told; on a busy machine neither may help
            assert outcome.advised == (outcome.measured > doctor.WORTH)
            assert outcome.advised or outcome.why_not.startswith(("measured", "for other work leaves"))
    assert any(outcome.measured is not None for outcome in tried)
    for actors in ("env.workers=subprocess", "pool=process"):
        assert of(found, actors).predicted < doctor.PROMISING
        assert not of(found, actors).advised


@pytest.mark.matrix
def test_cartpole_stays_in_one_process_and_comes_back_to_it(two_cpus: None) -> None:
    found = examine(config(*FILL, "env.num=4", env="CartPole-v1"), seconds=2.0)
    for processes in ("env.workers=subprocess", "pool=process"):
        assert of(found, processes).predicted < 1.0
        assert of(found, processes).measured is None
        assert "µs" in of(found, processes).note
    there = examine(config(*FILL, "env.num=4", "env.workers=subprocess", env="CartPole-v1"), seconds=4.0)
    back = of(there, "env.workers=inline")
    assert back.predicted > 1.05
    assert back.measured > 1.05
    assert back.advised


@pytest.mark.matrix
def test_envs_that_compute_get_no_more_processes_than_cpus(two_cpus: None) -> None:
    found = examine(config(*FILL, "env.num=4", env="doctor.doctor_envs:Computes"), seconds=1.0)
    assert found.bottleneck == "env"
    assert found.env_computing > 0.7
    assert of(found, "env.workers=subprocess").overrides[1] == "env.workers.processes=2"
    assert of(found, "pool=process").overrides[1] == "pool.workers=2"
