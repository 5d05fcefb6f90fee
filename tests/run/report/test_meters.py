"""Every meter means what its window says, and goes on exactly after a restore."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rookery.core.chunk import EpisodeEnd
from rookery.run.checkpoints.statefile import read_state, write_state
from rookery.run.report.clock import ENV, EVAL, OTHER, UPDATE, PhaseClock, Rates
from rookery.run.report.meters import CustomMeter, EpisodeMeter, Meters, SlidingUpdates, UpdateMeter, Window
from rookery.testing.comparing import through_checkpoint


def episode(total: float, length: int, **metrics: float) -> EpisodeEnd:
    return EpisodeEnd(0, 0, None, length, total, True, False, metrics=metrics)


def test_a_window_forgets_what_is_older_than_its_size() -> None:
    window = Window(3)
    assert math.isnan(window.mean)
    assert window.summary("x") == {}
    for value in (100.0, 1.0, 2.0, 6.0):
        window.add(value)
    # mean (1 + 2 + 6) / 3 = 3, variance (4 + 1 + 9) / 3
    assert window.summary("x") == {"x_mean": 3.0, "x_min": 1.0, "x_max": 6.0, "x_std": math.sqrt(14 / 3)}


def test_episode_metrics_are_absent_before_the_first_end_and_cover_the_last_k_after() -> None:
    meter = EpisodeMeter(2)
    assert meter.report() == {}
    for total, length in ((0.0, 1), (10.0, 3), (20.0, 5)):
        meter.add(episode(total, length, crashes=total))
    report = meter.report()
    assert report["episode/return_mean"] == 15.0
    assert report["episode/return_std"] == 5.0
    assert (report["episode/length_min"], report["episode/length_max"]) == (3.0, 5.0)
    assert meter.count == 3
    assert meter.report() == report  # a window of episodes is not emptied by a report
    assert meter.custom.report() == {"crashes_mean": 10.0, "crashes_min": 0.0, "crashes_max": 20.0}


def test_success_is_averaged_over_the_episodes_that_tell_it() -> None:
    meter = EpisodeMeter(3)
    meter.add(episode(1.0, 1))
    assert "episode/success_mean" not in meter.report()
    for told in (True, np.bool_(False), 0.0, 1):
        end = episode(1.0, 1)
        end.info["is_success"] = told
        meter.add(end)
    assert meter.report()["episode/success_mean"] == 1 / 3  # false, 0.0, 1: the first is out of the window
    other = EpisodeMeter(3)
    other.restore(meter.state())
    assert other.report() == meter.report()


def test_update_metrics_are_means_over_the_updates_since_the_last_report() -> None:
    meter = UpdateMeter()
    names = ("q/loss", "q/grad_norm")
    reused = np.zeros(2, np.float32)
    for loss in (1.0, 2.0, 6.0):
        reused[:] = loss, 10 * loss
        meter.add(names, reused)
    assert meter.report() == {"q/loss": 3.0, "q/grad_norm": 30.0}
    assert meter.report() == {}
    meter.add(names, np.array([5.0, 7.0]))
    assert meter.report() == {"q/loss": 5.0, "q/grad_norm": 7.0}


def test_a_look_between_two_reports_closes_no_window() -> None:
    meter = UpdateMeter()
    names = ("loss",)
    meter.add(names, np.array([2.0]))
    assert meter.means() == {"loss": 2.0}
    meter.add(names, np.array([4.0]))
    assert meter.means() == {"loss": 3.0}
    assert meter.report() == {"loss": 3.0}
    assert meter.means() == {}


def test_a_metric_of_some_updates_is_averaged_over_those() -> None:
    meter = UpdateMeter()
    critic, both = ("q/loss",), ("q/loss", "policy/loss")
    for i in range(4):  # the policy is updated in every second update
        if i % 2:
            meter.add(both, np.array([float(i), 10.0 * i]))
        else:
            meter.add(critic, np.array([float(i)]))
    # q: (0 + 1 + 2 + 3) / 4, policy: (10 + 30) / 2
    assert meter.report() == {"q/loss": 1.5, "policy/loss": 20.0}
    meter.add(critic, np.array([1.0]))
    assert meter.report() == {"q/loss": 1.0}


def test_equal_names_in_another_tuple_are_the_same_kind_of_update() -> None:
    meter = UpdateMeter()
    meter.add(("a",), np.array([1.0]))
    meter.add(tuple("a"), np.array([3.0]))
    assert meter.report() == {"a": 2.0}


def test_sums_are_kept_in_float64() -> None:
    meter = UpdateMeter()
    names = ("x",)
    one = np.array([1.0], np.float32)
    meter.add(names, np.array([2.0**24], np.float32))
    meter.add(names, one)
    meter.add(names, one)
    assert meter.report()["x"] == (2**24 + 2) / 3  # float32 would have lost both ones


def test_custom_metrics_give_mean_min_and_max_and_start_anew() -> None:
    meter = CustomMeter()
    for value in (3, 1, 8):
        meter.record("queue", value)
    assert meter.report() == {"queue_mean": 4.0, "queue_min": 1.0, "queue_max": 8.0}
    assert meter.report() == {}


class Ticks:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time: Any = 0

    def __call__(self) -> Any:
        return self.time


def test_phases_add_up_to_the_whole_and_know_where_the_time_went() -> None:
    ticks = Ticks()
    clock = PhaseClock(ticks)
    ticks.time = 10
    assert clock.switch(ENV) == OTHER
    ticks.time = 40
    assert clock.switch(UPDATE) == ENV
    ticks.time = 90
    with clock.phase(EVAL):
        ticks.time = 100
    clock.add(ENV, 20)  # measured inside this phase by someone else
    ticks.time = 200
    # other 10, env 30 + 20, update 50 + 100 - 20, eval 10
    report = clock.report()
    assert {name: round(200 * share) for name, share in report.items() if share} == {
        "time/other": 10,
        "time/env": 50,
        "time/update": 130,
        "time/eval": 10,
    }
    assert sum(report.values()) == pytest.approx(1.0)
    ticks.time = 210
    assert clock.report()["time/update"] == 1.0  # only what came since the last report
    assert clock.seconds()["update"] == pytest.approx(140e-9)


def test_a_resumed_clock_counts_the_seconds_before_but_not_the_pause() -> None:
    ticks = Ticks()
    clock, rates = PhaseClock(ticks), Rates(ticks)
    ticks.time = 100
    rates.report(steps=50)
    ticks.time = 120
    saved = clock.state(), rates.state()
    ticks.time = 100_000
    resumed, faster = PhaseClock(ticks), Rates(ticks)
    resumed.restore(saved[0])
    faster.restore(saved[1])
    ticks.time += 10
    assert resumed.seconds()["other"] == pytest.approx(130e-9)
    report = faster.report(steps=90)
    assert report == {"time/seconds": 130.0, "time/steps_per_second": 4.0}  # 40 steps in 10 s


def feed(meters: Meters, values: list[float]) -> None:
    for i, value in enumerate(values):
        meters.updates.add(("a", "b"), np.array([value, 1 / value]))
        if i % 3 == 0:
            meters.updates.add(("b", "c"), np.array([value, value**2]))
        meters.record("mine", value)
        if i % 2:
            meters.episodes.add(episode(value, i, own=value))


def test_a_report_after_a_restore_equals_the_uninterrupted_one_but_for_time(tmp_path: Path) -> None:
    values = np.random.Generator(np.random.PCG64(0)).uniform(0.1, 1.0, 40).tolist()
    straight, first, second = Meters(5), Meters(5), Meters(5)
    for meters in (straight, first):
        feed(meters, values[:7])
        meters.report(7, 7)
        feed(meters, values[7:20])
    before = first.state()
    second.restore(read_state(tmp_path, write_state(tmp_path, first.state())))
    assert str(first.state()["updates"]) == str(before["updates"])  # state() changes nothing
    for meters in (straight, second):
        feed(meters, values[20:])
    expected, got = (meters.report(40, 40) for meters in (straight, second))
    assert list(expected) == list(got)
    without_time = {name: value for name, value in expected.items() if not name.startswith("time/")}
    assert len(without_time) == 3 + 8 + 3 + 3
    assert {name: got[name] for name in without_time} == without_time  # bit for bit


def test_all_that_depends_on_a_clock_is_under_time() -> None:
    reports = []
    for pause in (0.0, 0.01):
        meters = Meters(5)
        feed(meters, [0.5, 0.25, 1.0])
        time.sleep(pause)
        reports.append({k: v for k, v in meters.report(3, 3).items() if not k.startswith("time/")})
        assert set(meters.state()) == {"episodes", "updates", "custom", "time"}
    assert reports[0] == reports[1]


def test_a_sliding_window_holds_the_last_updates_in_which_a_metric_occurred():
    both, one = ("loss", "td"), ("loss",)
    meter = SlidingUpdates(3)
    assert meter.report() == {}
    for number in (9.0, 1.0, 2.0):
        meter.add(both, np.array([number, -number], np.float32))
    meter.add(one, np.array([6.0]))  # td did not occur: its window still ends before
    report = meter.report()
    assert report["loss"] == 3.0  # (1 + 2 + 6) / 3
    assert (report["loss_min"], report["loss_max"]) == (1.0, 6.0)
    assert report["loss_std"] == pytest.approx(math.sqrt(14 / 3))
    assert (report["td"], report["td_min"], report["td_max"]) == (-4.0, -9.0, -1.0)
    assert meter.report() == report, "a report forgets nothing"

    again = SlidingUpdates(3)
    again.restore(through_checkpoint(meter.state()))
    for it in (meter, again):
        it.add(both, np.array([0.0, 0.0]))
    assert again.report() == meter.report()
    assert again.report()["loss"] == pytest.approx(8 / 3)


def test_a_run_may_be_resumed_with_another_window_of_updates():
    old = Meters(10)
    old.updates.add(("loss",), np.array([1.0]))
    new = Meters(10, 5)
    new.restore(through_checkpoint(old.state()))
    assert "loss" not in new.report(1, 1)
    new.updates.add(("loss",), np.array([2.0]))
    old.restore(through_checkpoint(new.state()))
    assert "loss" not in old.report(1, 1)
    assert new.report(1, 1)["loss_max"] == 2.0
