"""The sentinel stops a broken run with names and numbers, and says once what withers."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rookery.core.errors import Diverged
from rookery.run.checkpoints.statefile import read_state
from rookery.run.config.sections import SentinelConfig
from rookery.run.report.sentinel import CRITIC_PATIENCE, ENTROPY_PATIENCE, Sentinel, save_batch

NAMES = ("q/loss", "q/grad_norm", "target_mean")


def sentinel(folder: Path | None = None, **changes: Any) -> Sentinel:
    return Sentinel(SentinelConfig(**({"max_loss": 1000.0} | changes)), folder)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_anything_that_is_not_finite_is_named(dtype: type, bad: float, place: int) -> None:
    numbers = np.ones(3, dtype)
    sentinel().check(NAMES, numbers)
    numbers[place] = bad
    with pytest.raises(Diverged, match=f"update 17: {NAMES[place]} = {bad}") as caught:
        sentinel().check(NAMES, numbers, update=17)
    assert caught.value.exit_code == 5


def test_infinities_do_not_cancel() -> None:
    with pytest.raises(Diverged, match="q/loss = inf, q/grad_norm = -inf"):
        sentinel().check(NAMES, np.array([math.inf, -math.inf, 1.0]))


@pytest.mark.parametrize(("name", "value"), [("q/loss", 1001.0), ("policy_loss", -1001.0), ("q/grad_norm", 1e30)])
def test_an_exploding_loss_or_gradient_is_named_without_a_numpy_warning(name: str, value: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Diverged, match=rf"{name} = .*above sentinel\.max_loss = 1000"):
            sentinel().check((name, "x"), np.array([value, 0.0], np.float32))


def test_large_numbers_that_are_no_losses_are_nobody_s_trouble() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sentinel().check(NAMES, np.array([999.0, 999.0, 1e30], np.float32))
        sentinel(max_loss=1e300).check(NAMES, np.array([1e200, 1.0, 1.0]))


def test_the_offending_batch_is_saved_and_read_back(tmp_path: Path) -> None:
    batch = {"obs": {"image": torch.full((2, 3), math.nan)}, "action": np.array([0, 1])}
    with pytest.raises(Diverged) as caught:
        sentinel(tmp_path / "offending").check(("q/loss",), np.array([math.nan]), update=5, batch=batch)
    folder = tmp_path / "offending" / "update-5"
    assert f"The batch is in {folder}." in str(caught.value)
    back = read_state(folder, ["batch.safetensors"])["batch"]
    assert torch.isnan(back["obs"]["image"]).all()
    assert back["action"].tolist() == [0, 1]
    assert json.loads((folder / "metrics.json").read_text()) == {"update": 5, "metrics": {"q/loss": "nan"}}
    assert save_batch(tmp_path / "offending", batch, {}, 5).name == "update-5-1"  # the same update after a rollback


def test_a_batch_that_cannot_be_saved_does_not_hide_the_cause(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Diverged, match=r"q/loss = nan.*could not be saved: .*Not a directory"):
        sentinel(tmp_path / "file" / "x").check(("q/loss",), np.array([math.nan]), batch={"a": np.ones(1)})
    with pytest.raises(Diverged, match="was not saved"):
        sentinel(tmp_path, save_batch=False).check(("q/loss",), np.array([math.nan]), batch={"a": np.ones(1)})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_collapsed_entropy_is_warned_of_once_per_spell() -> None:
    watcher = sentinel()
    assert watcher.report({"entropy": 0.69}) == []
    low = [watcher.report({"entropy": 1e-5}) for _ in range(ENTROPY_PATIENCE + 5)]
    assert [len(said) for said in low] == [0] * (ENTROPY_PATIENCE - 1) + [1] + [0] * 5
    assert "entropy has collapsed to 1e-05" in low[ENTROPY_PATIENCE - 1][0]
    watcher.report({"entropy": 0.3})
    again = [watcher.report({"entropy": 0.0}) for _ in range(ENTROPY_PATIENCE)]
    assert [len(said) for said in again] == [0] * (ENTROPY_PATIENCE - 1) + [1]


def test_an_entropy_of_densities_may_pass_zero() -> None:
    watcher = sentinel()
    values = [1.4, 0.5, -0.5] + [0.0001] * 10 + [-1.0] * 10
    assert [said for value in values for said in watcher.report({"policy/entropy": value})] == []


@pytest.mark.parametrize(("name", "dead", "alive"), [("explained_variance", -0.1, 0.5), ("q/q_std", 0.0, 0.1)])
def test_a_dead_critic_is_warned_of_after_a_while_and_once(name: str, dead: float, alive: float) -> None:
    watcher = sentinel()
    start = [watcher.report({name: dead}) for _ in range(CRITIC_PATIENCE - 1)] + [watcher.report({name: alive})]
    assert not any(start)
    said = [watcher.report({name: dead}) for _ in range(CRITIC_PATIENCE + 3)]
    assert [len(s) for s in said] == [0] * (CRITIC_PATIENCE - 1) + [1] + [0] * 3
    assert name in said[CRITIC_PATIENCE - 1][0]


def test_warnings_can_be_switched_off_and_the_count_survives_a_restore() -> None:
    quiet = sentinel(warn_entropy=False, warn_critic=False)
    assert [quiet.report({"entropy": 0.0, "explained_variance": 0.0}) for _ in range(20)] == [[]] * 20
    watcher, resumed = sentinel(), sentinel()
    watcher.report({"entropy": 1.0})
    watcher.report({"entropy": 0.0})
    resumed.restore(watcher.state())
    assert [len(resumed.report({"entropy": 0.0})) for _ in range(3)] == [0, 1, 0]
