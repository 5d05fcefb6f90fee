"""The picture of the learning curves, on small invented curves."""

import json

import pytest

from docs.pages import ROOT, build, figure

RUNS = [
    {"seed": 0, "mean": 3.0, "steps": 20, "mode": "eager", "curve": [[10, 1.0], [20, 3.0]]},
    {"seed": 1, "mean": 5.0, "steps": 20, "mode": "eager", "curve": [[10, 2.0], [15, 9.0], [20, 5.0]]},
]


def store(folder, preset, runs=RUNS):
    folder.mkdir(exist_ok=True)
    stored = {"preset": preset, "iqm": 4.0, "low": 3.0, "high": 5.0, "gate": 4.5, "met": False, "runs": runs}
    (folder / f"{preset}.json").write_text(json.dumps(stored))


def test_a_panel_shows_the_stored_seeds_at_their_common_steps():
    # step 10: 1 and 2; step 15 only in one seed; step 20: 3 and 5
    curve = figure.curve({"preset": "a-dqn", "gate": 4.5, "runs": RUNS})
    assert curve.x.tolist() == [10.0, 20.0]
    assert (curve.centre.tolist(), curve.low.tolist(), curve.high.tolist()) == ([1.5, 4.0], [1.0, 3.0], [2.0, 5.0])
    assert (curve.gate, curve.runs) == (4.5, 2)


def test_without_curves_nothing_is_drawn_and_nothing_is_out_of_date(tmp_path):
    picture = tmp_path / "curves.svg"
    assert figure.update(tmp_path / "none", picture) == []
    assert not picture.exists()
    assert figure.stale(tmp_path / "none", picture) == []


@pytest.mark.slow
def test_pictures_are_current_until_a_curve_changes(tmp_path):
    curves, picture = tmp_path / "data", tmp_path / "images" / "curves.svg"
    for preset in ("a-dqn", "b-ppo", "c-sac", "d-dqn"):
        store(curves, preset)
    one = tmp_path / "images" / "curves" / "a-dqn.svg"
    assert len(figure.stale(curves, picture)) == 5  # all together, and one each
    assert len(figure.update(curves, picture)) == 5
    before = picture.read_bytes(), one.read_bytes()
    assert figure.stale(curves, picture) == []
    picture.unlink()
    one.unlink()
    assert figure.update(curves, picture) == [picture, one]
    assert (picture.read_bytes(), one.read_bytes()) == before  # no date, no random ids
    store(curves, "a-dqn", RUNS[:1])
    assert figure.stale(curves, picture) == [picture, one]
    (curves / "b-ppo.json").unlink()
    assert picture.parent / "curves" / "b-ppo.svg" in figure.update(curves, picture)
    assert not (picture.parent / "curves" / "b-ppo.svg").exists()


def test_the_picture_of_the_first_screen_has_the_chosen_presets_that_were_measured(tmp_path):
    for preset in ("a-dqn", "b-ppo"):
        store(tmp_path / "data", preset)
    wanted = figure.wanted(tmp_path / "data", tmp_path / "curves.svg", hero=("b-ppo", "z-sac"))
    assert [stored["preset"] for stored in wanted[tmp_path / "hero.svg"]] == ["b-ppo"]
    assert len(wanted) == 4


def test_a_preset_without_evaluations_leaves_an_empty_panel(tmp_path):
    store(tmp_path / "data", "a-dqn", [RUNS[0] | {"curve": []}])
    figure.update(tmp_path / "data", tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").exists()


def test_the_curve_of_one_preset_is_a_small_file():
    files = list((ROOT / "docs" / "images" / "curves").glob("*.svg"))
    assert files
    assert max(file.stat().st_size for file in files) < 40_000


def test_the_table_of_results_shows_figures_only_where_they_were_measured(tmp_path, monkeypatch):
    measured = {
        "return_iqm": 498.25,
        "interval": [490.0, 500.0],
        "steps": 50000,
        "seeds": 10,
        "gate": 475.0,
        "mode": "compiled",
    }
    rows = {"a-dqn": {"status": "gold", "measured": measured}, "b-ppo": {"status": "draft", "measured": None}}
    rest = {key: value for key, value in measured.items() if key != "return_iqm"}
    success = rest | {"success_iqm": 0.97, "interval": [0.95, 1.0], "gate": 0.9}
    rows["c-her"] = {"status": "gold", "measured": success}
    monkeypatch.setattr(build, "RESULTS", tmp_path / "results.json")
    build.RESULTS.write_text(json.dumps(rows))
    lines = build.all_results().splitlines()
    assert lines[2] == "| `rookery train a-dqn` | gold | 498.25 [490, 500] | 475 | 50 000 | 10 |"
    assert lines[-1] == "1 further presets are drafts, not measured yet: `rookery list presets`."
    assert lines[3] == "| `rookery train c-her` | gold | success 0.97 [0.95, 1] | success 0.9 | 50 000 | 10 |"
    monkeypatch.setattr(build, "CHOICE", ("c-her", "b-ppo"))
    assert build.results().splitlines()[2:] == lines[3:4], "the first screen has a choice, and no drafts"
    assert "[" not in build.result_table({"d-ppo": {"status": "silver", "measured": measured | {"seeds": 1}}})
