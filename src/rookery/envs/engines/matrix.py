"""Matrix games (`tasks.matrix_games`), B of them in one call: a table look-up, and where they are then.

Two agents choose at once. Where they are is one number of the physical state; with one place more than matrices, place
0 is the one where a's choice leads to a matrix (TwoStep).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from rookery.core.errors import ConfigError
from rookery.envs.boundary import LARGEST
from rookery.envs.tasks.matrix_games import Climbing, MatrixGame, Penalty, TwoStep

GAMES: tuple[type[MatrixGame], ...] = (TwoStep, Climbing, Penalty)


def made_by(target: Any) -> bool:
    return target in GAMES


def parameters(model: MatrixGame, **kwargs: Any) -> np.ndarray:
    """Payoffs [M, A, A]."""
    if not (np.abs(model.payoffs) <= LARGEST).all():
        raise ConfigError(f"env.kwargs={kwargs}: the native engine pays finite numbers only")
    return model.payoffs


def start(seed: int | None, agents: int) -> np.ndarray:
    """They begin at place 0, whatever the seed."""
    return np.zeros(1)


@njit(cache=True)
def look(rows: np.ndarray, physics: np.ndarray, own: np.ndarray, state: np.ndarray, place: np.ndarray) -> None:
    """What is seen in these envs: where they are, one-hot."""
    for i in rows:
        for c in range(state.shape[1]):
            here = 1.0 if physics[i, 0] == c else 0.0
            state[i, c], own[i, 0, c], own[i, 1, c] = here, here, here


@njit(cache=True)
def advance(
    action: np.ndarray,  # int64 [B, 2]
    physics: np.ndarray,  # f64 [B, 1]
    own: np.ndarray,  # f32 [B, 2, places]
    state: np.ndarray,  # f32 [B, places]
    reward: np.ndarray,  # f64 [B, 2]
    flags: np.ndarray,  # bool [3, B]: terminated, truncated, the task itself is over
    length: np.ndarray,  # int64 [B] steps of the running episode
    place: np.ndarray,  # int64 [2]: columns of a and b
    parameters: np.ndarray,
    limits: tuple[int, int, int],  # steps of an episode, envs to step, ends after which to stop
) -> tuple[int, int]:
    """(envs stepped, episodes ended); (−1 − i, …) if an action of env i is none."""
    longest, rows, episodes = limits
    matrices, choices = parameters.shape[0], parameters.shape[1]
    ended = 0
    for i in range(rows):
        if ended >= episodes:
            return i, ended
        a, b = action[i, place[0]], action[i, place[1]]
        if a < 0 or b < 0 or a >= choices or b >= choices:
            return -1 - i, ended
        here = int(physics[i, 0])
        over, pay = True, 0.0
        if state.shape[1] == matrices:
            pay = parameters[here, a, b]
        elif here == 0:
            over = False
            physics[i, 0] = 1 + a
            for c in range(state.shape[1]):
                seen = 1.0 if c == 1 + a else 0.0
                state[i, c], own[i, 0, c], own[i, 1, c] = seen, seen, seen
        else:
            pay = parameters[here - 1, a, b]
        reward[i, 0], reward[i, 1] = pay, pay
        length[i] += 1
        late = not over and length[i] >= longest
        flags[0, i], flags[1, i], flags[2, i] = over, late, over
        ended += over or late
    return rows, ended
