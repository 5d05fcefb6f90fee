"""The store's config refuses contradictions, naming both fields."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rookery.core.config.fields import comments_of
from rookery.data import ReplayConfig, RolloutConfig


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"batch_size": 64, "min_fill": 32},
            r"store.batch_size=64 is larger than store.min_fill=32: the first sample would repeat items",
        ),
        ({"capacity": 500}, r"store.min_fill=1000 is larger than store.capacity=500"),
        ({"updates_per_step": 0.0}, "updates_per_step"),
        ({"updates_per_step": float("nan")}, "updates_per_step"),
        ({"max_memory": 1.5}, "max_memory"),
        ({"max_reuse": 0}, "max_reuse"),
        ({"batchsize": 3}, "batchsize"),
    ],
)
def test_a_contradiction_is_refused_by_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ReplayConfig(**fields)


def test_every_field_is_documented_on_its_line() -> None:
    assert set(comments_of(ReplayConfig)) == set(ReplayConfig.model_fields)


def test_dump_and_reload_give_the_same_config() -> None:
    config = ReplayConfig(max_reuse=4, updates_per_step=0.25)
    assert ReplayConfig(**config.model_dump()) == config
    assert RolloutConfig().model_dump() == {}
