"""Learning curves: what is read, what is grouped, what line and band are, on numbers worked out by hand."""

import json

import numpy as np
import pytest

from rookery.core.errors import UsageError
from rookery.studies.curves import aligned, curve_of, grouped, read_run
from rookery.studies.plot import Words, draw, short
from rookery.studies.statistics import band, iqm


def points(*pairs):
    x, y = np.array(pairs, float).T
    return x, y


def write(folder, seed, lines, algo="dqn", **more):
    folder.mkdir(parents=True)
    config = {"algo": {"name": algo, "gamma": 0.9}, "env": {"id": "CartPole-v1"}, "run": {"seed": seed, "out": "x"}}
    for key, value in more.items():
        section, _, name = key.partition("_")
        config[section][name] = value
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


LINES = [
    {"steps": 10, "time/seconds": 1.0, "episode/return_mean": 3.0},
    {"steps": 12, "time/seconds": 2.5, "episode/return_mean": 4.0, "eval/steps": 11, "eval/return_mean": 7.0},
]


def test_steps_that_not_all_runs_have_are_left_out():
    # step 15 only in one run
    x, values = aligned([points((10, 1.0), (20, 3.0)), points((10, 2.0), (15, 9.0), (20, 5.0))])
    assert x.tolist() == [10.0, 20.0]
    assert values.tolist() == [[1.0, 3.0], [2.0, 5.0]]


def test_runs_without_common_steps_are_compared_between_their_points():
    # common range: 2 to 10; at 2 the first is half way from 0 to 4, at 4 the second a quarter of the way from 10 to 30
    x, values = aligned([points((0, 0.0), (4, 8.0), (12, 8.0)), points((2, 10.0), (10, 30.0))])
    assert x.tolist() == [2.0, 4.0, 10.0]
    assert values.tolist() == [[4.0, 8.0, 8.0], [10.0, 15.0, 30.0]]


def test_of_two_reports_at_one_step_the_last_counts():
    x, values = aligned([points((10, 1.0), (10, 2.0), (20, 3.0))])
    assert x.tolist() == [10.0, 20.0]
    assert values.tolist() == [[2.0, 3.0]]


def test_three_runs_have_a_mean_and_a_band_from_the_lowest_to_the_highest():
    curve = curve_of("a", [points((1, 0.0)), points((1, 3.0)), points((1, 9.0))])
    assert (curve.centre.tolist(), curve.low.tolist(), curve.high.tolist()) == ([4.0], [0.0], [9.0])
    assert curve.method == "mean of 3 runs, band from the lowest to the highest"


def test_four_runs_have_an_interquartile_mean_and_its_interval():
    values = np.array([[1.0], [2.0], [4.0], [1000.0]])
    curve = curve_of("a", [points((1, value)) for value in values[:, 0]])
    assert curve.centre.tolist() == [3.0] == iqm(values).tolist()
    assert (curve.low.tolist(), curve.high.tolist()) == tuple(edge.tolist() for edge in band(values))
    assert "IQM of 4 runs" in curve.method


def test_an_evaluation_counts_at_the_steps_it_was_made_after(tmp_path):
    folder = write(tmp_path / "a", 0, LINES)
    assert [axis.tolist() for axis in read_run(folder, "eval/return_mean").points] == [[11.0], [7.0]]
    assert [axis.tolist() for axis in read_run(folder, "episode/return_mean").points] == [[10.0, 12.0], [3.0, 4.0]]
    assert read_run(folder, "episode/return_mean", "seconds").points[0].tolist() == [1.0, 2.5]


def test_a_line_that_is_just_being_written_is_not_read(tmp_path):
    folder = write(tmp_path / "a", 0, LINES)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"steps": 14, "episode/ret')
    assert len(read_run(folder, "episode/return_mean").points[0]) == 2


def test_a_metric_that_is_not_there_and_a_folder_that_is_no_run_are_told(tmp_path):
    folder = write(tmp_path / "a", 0, LINES)
    with pytest.raises(UsageError, match="Did you mean 'eval/return_mean'"):
        read_run(folder, "eval/retrun_mean")
    with pytest.raises(UsageError, match="is not the folder of a run with metrics"):
        read_run(tmp_path, "eval/return_mean")


def test_runs_that_differ_by_seed_and_place_are_one_curve_and_others_are_named_by_their_difference(tmp_path):
    folders = [
        write(tmp_path / "a", 0, LINES),
        write(tmp_path / "b", 1, LINES, run_out="elsewhere"),
        write(tmp_path / "c", 0, LINES, algo_gamma=0.5),
        write(tmp_path / "d", 0, LINES, algo="ppo"),
        write(tmp_path / "e", 0, LINES, env_id="Acrobot-v1"),
    ]
    panels = grouped([read_run(folder, "eval/return_mean") for folder in folders])
    assert list(panels) == ["CartPole-v1", "Acrobot-v1"]
    told = [(curve.label, curve.runs) for curve in panels["CartPole-v1"]]
    assert told == [("dqn algo.gamma=0.9", 2), ("dqn algo.gamma=0.5", 1), ("ppo", 1)]
    assert panels["Acrobot-v1"][0].label == "dqn"


@pytest.mark.slow
def test_the_same_curves_are_drawn_to_the_same_bytes_in_every_kind(tmp_path):
    curves = [curve_of("a", [points((0, 1.0), (2000, 3.0))] * 2, 2.0), curve_of("b", [points((0, 2.0), (2000, 2.5))])]
    for kind in ("png", "svg"):
        first, second = tmp_path / f"1.{kind}", tmp_path / f"2.{kind}"
        for file in (first, second):
            draw({"CartPole-v1": curves}, file, Words(note="of the test"))
        assert first.read_bytes() == second.read_bytes()
    assert "of the test" in (tmp_path / "1.svg").read_text()
    assert "b (1)" in (tmp_path / "1.svg").read_text()  # text is text
    with pytest.raises(UsageError, match=r"ends with \.png"):
        draw({"CartPole-v1": curves}, tmp_path / "a.jpeg", Words())


def test_large_numbers_at_the_axis_are_short():
    assert [short(value) for value in (0.0, 500.0, 1500.0, 2e6)] == ["0", "500", "1.5k", "2M"]
