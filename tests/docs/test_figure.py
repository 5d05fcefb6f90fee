"""The picture of the learning curves, on small invented curves."""

import json

from docs.pages import build, figure

RUNS = [
    {"seed": 0, "mean": 3.0, "steps": 20, "mode": "eager", "curve": [[10, 1.0], [20, 3.0]]},
    {"seed": 1, "mean": 5.0, "steps": 20, "mode": "eager", "curve": [[10, 2.0], [15, 9.0], [20, 5.0]]},
]


def store(folder, preset, runs=RUNS):
    folder.mkdir(exist_ok=True)
    stored = {"preset": preset, "iqm": 4.0, "low": 3.0, "high": 5.0, "gate": 4.5, "met": False, "runs": runs}
    (folder / f"{preset}.json").write_text(json.dumps(stored))


def test_a_curve_is_the_mean_over_the_seeds_at_their_common_steps():
    # step 10: 1 and 2; step 15 only in one seed; step 20: 3 and 5
    assert figure.curve_of(RUNS) == ([10.0, 20.0], [1.5, 4.0], [1.0, 3.0], [2.0, 5.0])


def test_without_curves_nothing_is_drawn_and_nothing_is_out_of_date(tmp_path):
    picture = tmp_path / "curves.svg"
    figure.draw(tmp_path / "none", picture)
    assert not picture.exists()
    assert figure.current(tmp_path / "none", picture)


def test_the_picture_is_current_until_a_curve_changes(tmp_path):
    curves, picture = tmp_path / "curves", tmp_path / "images" / "curves.svg"
    for preset in ("a-dqn", "b-ppo", "c-sac", "d-dqn"):
        store(curves, preset)
    assert not figure.current(curves, picture)
    figure.draw(curves, picture)
    first = picture.read_bytes()
    assert figure.current(curves, picture)
    figure.draw(curves, picture)
    assert picture.read_bytes() == first  # no date, no random ids
    store(curves, "a-dqn", RUNS[:1])
    assert not figure.current(curves, picture)


def test_a_preset_without_evaluations_leaves_an_empty_panel(tmp_path):
    store(tmp_path / "curves", "a-dqn", [RUNS[0] | {"curve": []}])
    figure.draw(tmp_path / "curves", tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").exists()


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
    lines = build.results().splitlines()
    assert lines[2] == "| `rookery train a-dqn` | gold | 498.25 [490, 500] | 475 | 50 000 | 10 |"
    assert lines[-1] == "1 further presets are drafts, not measured yet: `rookery list presets`."
    assert lines[3] == "| `rookery train c-her` | gold | success 0.97 [0.95, 1] | success 0.9 | 50 000 | 10 |"
