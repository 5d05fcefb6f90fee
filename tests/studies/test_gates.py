"""The table of gates agrees with the presets, with what was measured, and with the curves that were stored."""

import json
from pathlib import Path

import pytest

from rookery.core import registry
from rookery.studies.gates import GATES
from rookery.studies.statistics import interval, iqm
from rookery.zoo import Result, curves_of, points_of, results

CURVES = Path(__file__).resolve().parents[2] / "docs" / "curves"
GOLD = sorted(name for name, result in results().items() if result.status == "gold")


def stored_curves(name):
    return json.loads((CURVES / f"{name}.json").read_text())


def test_every_gate_belongs_to_a_preset():
    assert set(GATES) <= set(registry.names("preset"))


def test_every_gold_preset_has_a_gate_a_curve_and_enough_seeds():
    assert GOLD
    for name in GOLD:
        assert name in GATES, f"{name} is gold without a gate"
        assert (CURVES / f"{name}.json").is_file(), f"{name} is gold without a curve"
        assert results()[name].measured["seeds"] >= max(5, GATES[name].seeds)


def test_what_is_stored_of_a_gold_preset_is_what_its_curve_file_says():
    for name in GOLD:
        stored, measured, gate = stored_curves(name), results()[name].measured, GATES[name]
        values = [run["mean"] for run in stored["runs"]]
        assert stored["preset"] == name
        assert stored.get("figure", "return") == gate.figure, name
        assert measured["gate"] == stored["gate"] == gate.wanted, name
        assert measured["seeds"] == len(values), name
        assert {run["steps"] for run in stored["runs"]} == {measured["steps"]}, name
        assert measured[f"{gate.figure}_iqm"] == round(iqm(values), 2) >= gate.wanted, name
        assert measured["interval"] == [round(edge, 2) for edge in interval(values)], name


def test_the_package_holds_the_curves_of_the_repository():
    for name in GOLD:
        assert curves_of(name) == stored_curves(name), name
        assert len(points_of(curves_of(name))) == results()[name].measured["seeds"], name


def test_a_preset_that_was_not_measured_has_no_curves():
    assert curves_of("a-preset-that-nobody-measured") is None


def test_every_curve_belongs_to_a_preset():
    assert {path.stem for path in CURVES.glob("*.json")} <= set(registry.names("preset"))


@pytest.mark.parametrize(("seeds", "told"), [(1, "1 seed"), (5, "5 seeds")])
def test_one_seed_is_not_called_seeds(seeds, told):
    assert str(Result("silver", {"return_iqm": 3.5, "seeds": seeds})) == f"return 3.5, {told}"
