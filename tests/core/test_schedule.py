"""Schedules: numbers worked out by hand, the ends exact, mistakes refused."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from rookery.core.config.section import Section
from rookery.core.errors import ConfigError, UsageError
from rookery.core.schedule import Schedule


class Example(Section):
    lr: Schedule = Schedule(start=3e-4)


def read(value: Any) -> Schedule:
    return Schedule.model_validate(value)


@pytest.mark.parametrize(
    "value", [0.25, "0.25", "2.5e-1", np.float32(0.25), {"kind": "constant", "start": 0.25}, {"start": 0.25}]
)
def test_a_number_is_a_constant(value: Any) -> None:
    schedule = read(value)

    assert [schedule.at(step) for step in (0, 1, 10**9)] == [0.25] * 3


def test_linear_goes_straight_and_stays_at_its_end() -> None:
    schedule = read({"kind": "linear", "start": 1.0, "end": 0.5, "steps": 100})
    assert [schedule.at(step) for step in (-5, 0, 25, 50, 100, 1000)] == [1.0, 1.0, 0.875, 0.75, 0.5, 0.5]


def test_both_ends_are_met_exactly() -> None:
    # 1 + (0.05 − 1) is 0.050000000000000044, and 0.3 + (0.1 − 0.3) is 0.09999999999999998
    for kind in ("linear", "cosine"):
        for start, end in ((1.0, 0.05), (0.3, 0.1), (1e-4, 3e-4)):
            schedule = read({"kind": kind, "start": start, "end": end, "steps": 7})
            assert (schedule.at(0), schedule.at(7), schedule.at(8)) == (start, end, end)


def test_exponential_shrinks_the_distance_by_its_factor_per_steps() -> None:
    # 1 + (5 − 1) · ½^(t/10): 5, 1 + 4/√2 at 5, 3 at 10, 2 at 20, and it never stops
    schedule = read({"kind": "exponential", "start": 5, "end": 1, "steps": 10})
    assert [schedule.at(step) for step in (0, 10, 20)] == [5.0, 3.0, 2.0]
    assert schedule.at(5) == pytest.approx(1 + 4 / math.sqrt(2))
    assert schedule.at(10**9) == 1.0
    faster = read({"kind": "exponential", "start": 5, "end": 1, "steps": 10, "decay": 0.25})
    assert faster.at(10) == 2.0


def test_cosine_is_flat_at_both_ends_and_halfway_in_the_middle() -> None:
    # (1 + cos(π/3)) / 2 = ¾ at a third, ½ at a half
    schedule = read({"kind": "cosine", "start": 2, "end": 0, "steps": 6})
    assert [schedule.at(step) for step in (0, 2, 3, 4, 6, 9)] == pytest.approx([2, 1.5, 1, 0.5, 0, 0])


def test_piecewise_is_linear_between_its_points_and_constant_outside() -> None:
    schedule = read({"kind": "piecewise", "points": [[10, 1.0], [20, 3.0], [60, 2.0]]})
    assert [schedule.at(step) for step in (0, 10, 15, 20, 40, 60, 99)] == [1.0, 1.0, 2.0, 3.0, 2.5, 2.0, 2.0]


def test_null_steps_mean_the_whole_run() -> None:
    schedule = read({"kind": "linear", "start": 1, "end": 0})
    assert schedule.steps is None
    assert schedule.resolved(200).at(50) == 0.75
    assert schedule.resolved(0).at(1) == 0.0
    assert schedule.steps is None  # the original is as it was


def test_resolving_changes_nothing_that_has_its_own_length() -> None:
    for value in (
        0.1,
        {"kind": "linear", "start": 1, "end": 0, "steps": 10},
        {"kind": "piecewise", "points": [[0, 1], [1, 2]]},
    ):
        schedule = read(value)
        assert schedule.resolved(200) is schedule
        assert schedule.resolved(None) is schedule


def test_a_whole_run_without_a_length_is_an_error_and_not_a_jump_to_the_end() -> None:
    schedule = read({"kind": "cosine", "start": 1, "end": 0})
    with pytest.raises(ConfigError, match="no length"):
        schedule.resolved(None)
    with pytest.raises(UsageError, match="resolved"):
        schedule.at(0)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("fast", "expected a number or a schedule"),
        (True, "expected a number or a schedule"),
        (None, "expected a number or a schedule"),
        ([1, 2], "expected a number or a schedule"),
        (10**400, "expected a number or a schedule"),
        (math.nan, "finite"),
        ("inf", "finite"),
        ({"kind": "linear", "start": 1, "end": math.nan}, "finite"),
        ({"kind": "lineer", "start": 1, "end": 0}, "'linear'"),
        ({"kind": "linear", "start": 1}, "needs `end`"),
        ({"kind": "linear", "start": 1, "end": None}, "needs `end`"),
        ({"kind": "cosine", "end": 1}, "needs `start`"),
        ({"start": 1, "end": 0.1, "steps": 100}, "a constant schedule has no `end`, `steps`"),  # `kind` was forgotten
        ({"kind": "linear", "start": 1, "end": 0, "decay": 0.5}, "a linear schedule has no `decay`"),
        ({"kind": "piecewise", "points": [[0, 1], [1, 2]], "start": 1}, "a piecewise schedule has no `start`"),
        ({"kind": "piecewise", "points": [[0, 1]]}, "at least two points"),
        ({"kind": "piecewise", "points": [[0, 1], [0, 2]]}, "increasing"),
        ({"kind": "piecewise"}, "needs `points`"),
        ({"kind": "linear", "start": 1, "end": 0, "steps": 0}, "greater than or equal to 1"),
        ({"kind": "exponential", "start": 1, "end": 0, "decay": 1.5}, "less than 1"),
        ({"kind": "linear", "start": 1, "end": 0, "step": 5}, "Extra inputs"),
    ],
    ids=str,
)
def test_a_mistake_is_refused_with_a_sentence(value: Any, sentence: str) -> None:
    with pytest.raises(ValidationError) as error:
        Example(lr=value)
    assert sentence in str(error.value)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    "value",
    [
        0.25,
        {"kind": "linear", "start": 1.0, "end": 0.1, "steps": None},
        {"kind": "linear", "start": 1.0, "end": 0.1, "steps": 5},
        {"kind": "exponential", "start": 1.0, "end": 0.1, "steps": 5, "decay": 0.25},
        {"kind": "cosine", "start": 1.0, "end": 0.1, "steps": 5},
        {"kind": "piecewise", "points": [[0.0, 1.0], [5.0, 2.0]]},
    ],
    ids=str,
)
def test_dump_is_what_was_written_and_reload_is_the_same_schedule(value: Any) -> None:
    example = Example(lr=value)
    assert example.model_dump() == {"lr": value}
    assert Example.model_validate_json(example.model_dump_json()) == example
    assert Example(lr=example.lr) == example


def test_the_json_schema_allows_a_number_and_an_object() -> None:
    schema = Example.model_json_schema()
    kinds = [option.get("type") for option in schema["$defs"]["Schedule"]["anyOf"]]
    assert kinds == ["number", "object"]
    json.dumps(schema)


def test_a_schedule_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        read(1.0).start = 2.0


@pytest.mark.parametrize(
    ("schedule", "rises", "text"),
    [
        (Schedule(start=0.1), False, "constant, 0.1"),
        (Schedule(kind="linear", start=1.0, end=0.05, steps=10), False, "linear, 1 → 0.05"),
        (Schedule(kind="linear", start=0.05, end=1.0, steps=10), True, "linear, 0.05 → 1"),
        (Schedule(kind="piecewise", points=((0, 1.0), (5, 0.1), (9, 0.2))), True, "piecewise, 1 → 0.1 → 0.2"),
    ],
)
def test_a_schedule_knows_whether_it_rises_and_tells_its_values(schedule, rises, text):
    assert schedule.rises is rises
    assert str(schedule) == text
