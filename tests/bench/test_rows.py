"""The table of the benchmark: nothing is compared that did not do the same work, and ratios mean what they say."""

import argparse
import json
import math
import time

import pytest

from bench.tools import ROOT, bench_tables, build, rows, speed, venvs, works

SAME = {"seconds": 2.0, "steps": 1000, "updates": 250, "parameters": 100, "network": "4→128 128→130", "batch": 64}
TRAIN = works.Work("train", ("stable-baselines3", "rookery"), works.RATE)
ABOUT = {"date": "2026-01-02", "commit": "abc"}


def seen(**changes):
    return {"stable-baselines3": [SAME], "rookery": [SAME, SAME | changes]}


def test_runs_that_did_the_same_are_compared():
    rows.check_same_work("w", "stable-baselines3", seen())


def test_a_difference_of_one_percent_is_the_end_of_a_round():
    rows.check_same_work("w", "stable-baselines3", seen(steps=1010, updates=252))


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 1030},
        {"updates": 240},
        {"updates": 0},
        {"parameters": 90},
        {"network": "4→64 64→66"},
        {"batch": 32},
    ],
)
def test_other_steps_updates_networks_and_batches_are_refused(changes):
    with pytest.raises(rows.OtherWork, match=f"w: rookery .*{next(iter(changes))}"):
        rows.check_same_work("w", "stable-baselines3", seen(**changes))


def test_a_rate_is_better_when_it_is_higher_and_a_time_when_it_is_lower():
    micro = works.Work("operation", ("a", "b"), works.MICRO)
    assert rows.value_of(TRAIN, SAME) == 500.0
    assert rows.value_of(micro, SAME) == 2000.0  # 2 s for 1000 calls
    assert rows.ratio_of(TRAIN, 500.0, 250.0) == 2.0
    assert rows.ratio_of(micro, 500.0, 250.0) == 0.5


def test_ratios_are_taken_within_a_round_and_the_row_has_their_median():
    fast = [SAME | {"seconds": s} for s in (1.0, 0.5, 2.0)]  # 1000, 2000, 500 steps per second
    slow = [SAME | {"seconds": s} for s in (2.0, 4.0, 2.0)]  # 500, 250, 500
    _, ours = rows.rows_of("w", TRAIN, {"stable-baselines3": slow, "rookery": fast}, ABOUT)
    assert (ours["median"], ours["low"], ours["high"], ours["n"]) == (1000.0, 500.0, 2000.0, 3)
    assert (ours["ratio"], ours["ratio_low"], ours["ratio_high"]) == (2.0, 1.0, 8.0)
    assert ours["ratio_to_sb3"] == 2.0
    assert (ours["env_steps"], ours["updates"], ours["network"], ours["batch"]) == (1000, 250, "4→128 128→130", 64)
    assert (ours["date"], ours["commit"]) == ("2026-01-02", "abc")


def test_several_agents_are_compared_per_cpu_second_and_the_wall_is_told_beside_it():
    work = works.Work("train", ("benchmarl", "rookery"), works.CPU_RATE, base="benchmarl")
    theirs, ours = (SAME | {"seconds": wall, "cpu": cpu} for wall, cpu in ((4.0, 2.0), (2.0, 0.5)))
    _, row = rows.rows_of("w", work, {"benchmarl": [theirs], "rookery": [ours]}, ABOUT)
    assert (row["median"], row["unit"]) == (2000.0, "env steps / CPU s")
    assert row["ratio"] == 4.0  # the wall would say 2
    assert row["wall"] == 500.0


def test_a_mark_counts_what_was_computed_not_what_was_waited_for():
    first = works.mark(0, 0)
    while time.process_time() < first.cpu + 0.02:
        pass
    busy = works.mark(10, 2)
    time.sleep(0.05)
    told = works.answer([busy, works.mark(30, 5)], [(2, 3), (2,)], 7)
    assert busy.cpu - first.cpu >= 0.02
    assert told["seconds"] >= 0.05 > told["cpu"]
    assert (told["steps"], told["updates"], told["batch"], told["parameters"]) == (20, 3, 7, 8)


def test_rows_of_all_agents_count_where_each_learns_by_itself_and_those_of_the_team_where_it_does():
    assert works.batch_of(works.SPREAD) == 3 * 64 * 25
    assert works.batch_of(works.LBF) == 128


def test_a_ratio_to_somebody_else_is_not_called_one_to_sb3():
    other = works.Work("engine", ("gymnasium", "rookery"), works.RATE, base="gymnasium")
    _, ours = rows.rows_of("w", other, {"gymnasium": [SAME], "rookery": [SAME]}, ABOUT)
    assert ours["ratio"] == 1.0
    assert ours["ratio_to_sb3"] is None


def test_a_policy_that_is_too_weak_has_taken_for_ever():
    solve = works.Work("solve", ("stable-baselines3", "rookery"), "s")
    good, weak = {"seconds": 4.0, "return": 480.0, "steps": 9}, {"seconds": 3.0, "return": 474.9, "steps": 9}
    assert math.isinf(rows.value_of(solve, weak))
    theirs, ours = rows.rows_of("w", solve, {"stable-baselines3": [good] * 3, "rookery": [good, weak, good]}, ABOUT)
    assert (theirs["solved"], ours["solved"]) == (3, 2)
    assert (ours["median"], ours["low"], ours["high"]) == (4.0, 4.0, None)
    assert (ours["ratio"], ours["ratio_low"]) == (1.0, 0.0)
    json.dumps(ours, allow_nan=False)
    _, ours = rows.rows_of("w", solve, {"stable-baselines3": [weak] * 3, "rookery": [good] * 3}, ABOUT)
    assert ours["median"] == 4.0
    assert ours["ratio"] is None  # nobody can be faster than never


def test_rows_measured_again_replace_the_old_ones_and_the_others_stay():
    old = [{"work": "b", "peer": "x", "median": 1}, {"work": "a-part", "peer": "x", "median": 2}]
    new = [{"work": "b", "peer": "x", "median": 3}, {"work": "b", "peer": "y", "median": 4}]
    found = rows.merged(old, new, ["a", "b"])
    assert [(row["work"], row["peer"], row["median"]) for row in found] == [
        ("a-part", "x", 2),
        ("b", "x", 3),
        ("b", "y", 4),
    ]


def test_own_figures_become_rows_of_their_own():
    runs = [
        {"steps": 7, "figures": [{"name": "next", "value": v, "unit": "s", "target": "≤ 5"}]} for v in (1.0, 3.0, 2.0)
    ]
    (row,) = rows.own_rows("checkpoint", runs, ABOUT)
    assert (row["work"], row["median"], row["n"], row["target"]) == ("checkpoint-next", 2.0, 3, "≤ 5")


def test_the_share_of_saving_is_known_once_saving_and_pace_are():
    save = {"work": "checkpoint-next-seconds", "peer": "rookery", "median": 2.0, "n": 1}
    pace = {"work": "pong-dqn-8env", "peer": "rookery compiled", "median": 125.0}  # 80 s for 10 000 steps
    assert rows.checkpoint_share([save]) == []
    (row,) = rows.checkpoint_share([save, pace])
    assert (row["work"], row["median"]) == ("checkpoint-share", pytest.approx(100 * 2 / 82))


def test_layers_are_compared_whether_or_not_heads_are_split():
    split = [(256, 3), (256,), (256, 256), (1, 256), (1, 256)]
    joint = [(256, 3), (256,), (256, 256), (2, 256)]
    assert works.network_of(split) == works.network_of(joint) == "3→256 256→258"
    assert works.network_of([(32, 4, 8, 8)]) == "256→32"
    assert works.network_of([(128, 3), (2, 128)]) != works.network_of([(64, 3), (2, 64)])


@pytest.mark.parametrize(
    ("envs", "share", "burst", "expected"),
    [
        (1, 1.0, None, (1, 1)),
        (1, 0.25, None, (4, 1)),
        (8, 1.0, None, (1, 8)),
        (8, 0.25, None, (1, 2)),
        (1, 0.5, 256, (256, 128)),
    ],
)
def test_updates_per_round_keep_the_share(envs, share, burst, expected):
    settings = {"envs": envs, "updates_per_step": share} | ({"burst": burst} if burst else {})
    assert works.updates_per_round(settings) == expected


def test_every_contender_has_a_script_and_every_work_its_base():
    for name, work in works.WORKS.items():
        assert work.base is None or work.base in work.peers, name
        for peer in work.peers:
            assert (ROOT / "bench" / "peers" / f"{speed.CONTENDERS[peer].peer}_run.py").exists(), f"{name}: {peer}"
    quick = {name: work for name, work in works.WORKS.items() if work.quick is not None}
    assert {work.kind for work in quick.values()} == {work.kind for work in works.WORKS.values()}
    args = argparse.Namespace(peers=None, all_peers=False, quick=True)
    for work in quick.values():
        chosen = speed.contenders_of(work, args)
        assert work.base is None or work.base in chosen
        assert any(peer.startswith("rookery") for peer in chosen)
    loops = ["stable-baselines3", "rookery eager", "rookery compiled, native engine"]
    assert speed.contenders_of(works.WORKS["ppo-8x128"], args) == loops


@pytest.mark.parametrize("name", ["dqn-1env-1/1", "dqn-1env-1/4", "dqn-8env-1/1", "dqn-8env-1/4"])
def test_three_libraries_run_only_when_asked_for(name):
    work = works.WORKS[name]
    usual = speed.contenders_of(work, argparse.Namespace(peers=None, all_peers=False, quick=False))
    every = speed.contenders_of(work, argparse.Namespace(peers=None, all_peers=True, quick=False))
    assert [peer for peer in every if peer not in usual] == ["torchrl", "rllib", "di-engine"]
    named = speed.contenders_of(work, argparse.Namespace(peers=["di-engine"], all_peers=False, quick=False))
    assert named == ["stable-baselines3", "di-engine"]  # the base always


def test_what_cannot_be_had_with_our_torch_is_installed_without_its_requirements(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setenv("ROOKERY_PEERS", str(tmp_path))
    monkeypatch.setattr(venvs.venv, "create", lambda folder, with_pip: folder.mkdir())
    monkeypatch.setattr(venvs.subprocess, "run", lambda words, check: calls.append(words[6:]))
    monkeypatch.setattr(venvs, "check_torch", lambda python, name: calls.append(["torch", name]))
    library = venvs.Library(("b<2",), "a", alone=("a==1",))
    monkeypatch.setattr(venvs, "LIBRARIES", {"a": library, "c": venvs.Library(("c==3",), "c")})
    constrained = ["-c", str(ROOT / "constraints.txt")]
    venvs.python_of("a")
    assert calls == [[*constrained, "b<2"], ["--no-deps", "a==1"], ["torch", "a"]]
    calls.clear()
    assert venvs.python_of("a") == tmp_path / "a" / "bin" / "python"
    assert calls == []  # once
    venvs.python_of("c")
    assert calls == [[*constrained, "c==3"], ["torch", "c"]]


def test_a_partial_run_is_merged_into_the_results_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "RESULTS", tmp_path / "latest.json")
    monkeypatch.setattr(speed, "versions", lambda peers: dict.fromkeys(peers, "1"))
    row = {"work": "sac-256", "peer": "rookery compiled", "median": 1.0}
    speed.write([row], {"tianshou"})
    speed.write([row | {"work": "dqn-1env-1/1"}, row | {"median": 2.0}], {"torchrl"})
    stored = json.loads(speed.RESULTS.read_text())
    assert [(r["work"], r["median"]) for r in stored["rows"]] == [("dqn-1env-1/1", 1.0), ("sac-256", 2.0)]
    assert stored["versions"] == {"tianshou": "1", "torchrl": "1"}
    assert {"machine", "cores", "commit", "date"} <= set(stored)


def test_the_short_table_has_one_line_per_work_and_the_whole_one_every_row(tmp_path):
    file = tmp_path / "latest.json"
    assert "make bench" in bench_tables.short(file, build.table)
    about = {
        "unit": "env steps / s",
        "n": 5,
        "base": "stable-baselines3",
        "target": "≥ 8 ×",
        "network": "4→128",
        "batch": 64,
    }
    spread = {"low": 90.0, "high": 110.0, "ratio_low": 1.0, "ratio_high": 1.0}
    theirs = {"work": "dqn-1env-1/1", "peer": "stable-baselines3", "median": 100.0, "ratio": 1.0} | about | spread
    ours = theirs | {"peer": "rookery compiled", "median": 850.0, "ratio": 8.5, "ratio_low": 8.0, "ratio_high": 9.0}
    other = theirs | {"work": "replay-add", "unit": "µs", "date": "2026-01-02T03:04:05", "commit": "abc"}
    head = {"machine": "a CPU", "cores": 2, "versions": {"torch": "2"}, "commit": "abc"}
    fast = ours | {"peer": "rookery compiled, native engine", "median": 900.0, "ratio": 9.0}
    file.write_text(json.dumps(head | {"rows": [theirs, ours, fast, other]}))
    short, whole = (make(file, build.table).splitlines() for make in (bench_tables.short, bench_tables.whole))
    assert short[4:] == ["| DQN, 1 env, 1 update per step | 900 / s | 100 / s | 9.00 [8, 9] | 8.50 [8, 9] | 5 |"]
    assert len(whole) == 4 + 4
    assert "| replay-add | stable-baselines3 | 100 [90, 110] | µs | 1.00 [1, 1] |" in whole[-1]
    assert whole[-1].endswith("| 4→128 | 64 | abc | 2026-01-02 |")
