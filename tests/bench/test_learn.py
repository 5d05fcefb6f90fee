"""bench/learn.py stores what was measured; here it is given the stored seeds again and must write the very same."""

import importlib.util
import json

import pytest

import fake_zoo as fake
from bench.tools import ROOT
from rookery.studies.gates import GATES
from rookery.studies.seeds import Judged
from rookery.studies.verify import Verdict
from rookery.zoo import results


@pytest.fixture(scope="module")
def learn():
    """By its path: tests have a package of that name."""
    spec = importlib.util.spec_from_file_location("bench_learn", ROOT / "bench" / "learn.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored(name):
    return json.loads((ROOT / "docs" / "curves" / f"{name}.json").read_text())


def verdict(name, gate, curves):
    runs = [
        Judged(run["seed"], run["mean"], (run["mean"], 0.0), run["steps"], run["mode"], run["curve"], 0.0)
        for run in curves["runs"]
    ]
    return Verdict(name, gate, runs)


def invented(name):
    return verdict(name, fake.FAKE_GATES[name], fake.curves_of(name))


def test_the_stored_seeds_of_every_gold_preset_give_the_stored_figures_and_curves_again(learn):
    for name in sorted(name for name, result in results().items() if result.status == "gold"):
        found, before = verdict(name, GATES[name], stored(name)), stored(name)
        assert learn.measured(found) == {"status": "gold", "measured": results()[name].measured}, name
        again = learn.curves(found)
        assert list(again) == list(before), name
        for key, value in before.items():
            same = pytest.approx(value, rel=1e-12) if key in ("iqm", "low", "high") else value
            assert again[key] == same, (name, key)


def test_a_missed_gate_or_too_few_seeds_are_not_gold(learn):
    found = invented("pole-fake")
    assert learn.measured(found)["status"] == "gold"
    few = Verdict("pole-fake", found.gate, found.runs[:4])
    assert learn.measured(few)["status"] == "silver"
    poor = [Judged(seed, 100.0, (100.0, 0.0), 10, "eager", [], 0.0) for seed in range(10)]
    assert learn.measured(Verdict("pole-fake", found.gate, poor))["status"] == "silver"


def test_results_and_curves_are_written_where_they_are_read(learn, tmp_path, monkeypatch):
    monkeypatch.setattr(learn, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(learn, "CURVES", tmp_path / "curves")
    for name in ("swing-fake", "pole-fake"):
        learn.store(invented(name))
    assert list(json.loads((tmp_path / "results.json").read_text())) == ["pole-fake", "swing-fake"]
    written = json.loads((tmp_path / "curves" / "swing-fake.json").read_text())
    assert written["runs"] == fake.curves_of("swing-fake")["runs"]


def test_changes_may_stand_behind_the_options_as_the_usage_says(learn, tmp_path, monkeypatch, fake_zoo):
    asked = []

    def verify(preset, overrides, seeds, out, options):
        asked.append((preset, overrides, list(seeds), out, options.jobs))
        return invented("pole-fake")

    monkeypatch.setattr(learn, "verify", verify)
    monkeypatch.setattr(learn, "store", lambda found: pytest.fail("a changed preset was stored"))
    words = ["learn.py", "pole-fake", "--seeds", "2", "--first", "100", "--out", str(tmp_path), "algo.lr=1e-3"]
    monkeypatch.setattr("sys.argv", words)
    learn.main()
    assert asked == [("pole-fake", ["algo.lr=1e-3"], [100, 101], tmp_path, None)]
