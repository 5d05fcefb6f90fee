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
TRIED = 5  # pairs of goals
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
    own, other = np.stack([achieved] * TRIED), np.stack([desired, achieved, desired, achieved, desired])
    one, many = _tried(ByRow(judge), own, other), _tried(judge, own, other)
    if not isinstance(many, str) and (isinstance(one, str) or np.allclose(one, many, rtol=1e-4, atol=1e-6)):
        return judge
    if not isinstance(one, str):
        return ByRow(judge)
    raise EnvError(
        f"{name} of the env must judge goals of shape {np.shape(achieved)}, {TRIED} of them at once or one by one, "
        f"without infos (they are not stored). At once: {many}; one: {one}. Let it give a finite number for every pair."
    )


def _tried(judge: Judge, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray | str:
    """The numbers that it gives, or what is wrong with them."""
    try:
        answer = np.asarray(judge(achieved.copy(), desired.copy(), [{} for _ in achieved]), np.float32)
    except Exception as error:  # noqa: BLE001  # the env's own code
        return f"{type(error).__name__}: {error}{place(error)}"
    right = answer.shape == (TRIED,) and np.isfinite(answer).all()
    return answer if right else f"it gave {answer.tolist()}"
