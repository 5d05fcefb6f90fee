"""What a goal env says about goals (`compute_reward`, `compute_terminated`), as functions of many of them.

Hindsight asks about N pairs of goals at once. Many envs judge a single pair only: those of gymnasium-robotics answer
`compute_terminated` with one bool, others fail on arrays or mix the rows up. Such a function is called row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rookery.core.errors import EnvError
from rookery.envs.boundary import number
from rookery.envs.faults import place

GOALS = ("observation", "achieved_goal", "desired_goal")  # keys of a goal env's observation
Judge = Callable[[Any, Any, Any], Any]  # (achieved, desired, info) → reward, or whether it ends


class ByRow:
    """A function of one pair of goals, called for every row."""

    def __init__(self, judge: Judge):
        self._judge = judge

    def __call__(self, achieved: np.ndarray, desired: np.ndarray, infos: list[dict[str, Any]]) -> np.ndarray:
        judge = self._judge
        return np.array([number(judge(*pair)) for pair in zip(achieved, desired, infos)], np.float32)


def for_rows(name: str, judge: Judge, achieved: np.ndarray, desired: np.ndarray) -> Judge:
    """The env's function as one of goals [N, …], tried with a pair of goals of the env's own.

    It is taken as it is if it judges many goals as it judges each of them; an EnvError says that it can do neither.
    """
    own, other = np.stack([achieved] * 5), np.stack([desired, achieved, desired, achieved, desired])
    try:
        rows = ByRow(judge)(own, other, _infos())
        alone = None if np.isfinite(rows).all() else f"it gave {rows.tolist()}"
    except Exception as error:  # noqa: BLE001  # the env's own code
        rows, alone = np.zeros(0), f"{type(error).__name__}: {error}{place(error)}"
    many, together = np.zeros(0, np.float32), None
    try:
        many = np.asarray(judge(own.copy(), other.copy(), _infos()), np.float32)
        if many.shape != (5,) or not np.isfinite(many).all():
            together = f"it gave {many.tolist()}"
    except Exception as error:  # noqa: BLE001
        together = f"{type(error).__name__}: {error}{place(error)}"
    if together is None and (alone is not None or np.allclose(rows, many, rtol=1e-4, atol=1e-6)):
        return judge
    if alone is None:
        return ByRow(judge)
    raise EnvError(
        f"{name} of the env must judge goals of shape {np.shape(achieved)}, 5 of them at once or one by one, without "
        f"infos (they are not stored). At once: {together}; one: {alone}. Let it return a finite number for every pair."
    )


def _infos() -> list[dict[str, Any]]:
    return [{} for _ in range(5)]
