"""Cart and pole, B of them in one call (Barto, Sutton & Anderson 1983; the equations after
Florian 2007, without friction).

    p  = (F + m l ω² sin θ) / (m + M)                          F = ±10 N, l half the pole's length
    α  = (g sin θ − p cos θ) / (l (4/3 − m cos² θ / (m + M)))
    a  = p − m l α cos θ / (m + M)
    x ← x + τ v,  v ← v + τ a,  θ ← θ + τ ω,  ω ← ω + τ α      explicit Euler, all right sides old

Over when |x| > 2.4 or |θ| > 12°.
The order of operations is that of gymnasium's CartPoleEnv, so that the bits are equal too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

WIDTH = 4  # numbers of the physical state: x, v, θ, ω
ENTRY_POINT = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
GRAVITY, FORCE, TAU = 9.8, 10.0, 0.02
POLE, CART, HALF_LENGTH = 0.1, 1.0, 0.5
MASS = POLE + CART
MOMENT = POLE * HALF_LENGTH  # m l
X_LIMIT, ANGLE_LIMIT = 2.4, 12 * 2 * math.pi / 360


def parameters(sutton_barto_reward: bool = False) -> np.ndarray:
    """[reward of a step, reward of the step with which the pole falls]."""
    return np.array([0.0, -1.0] if sutton_barto_reward else [1.0, 1.0])


def start(generator: np.random.Generator) -> np.ndarray:
    return generator.uniform(low=-0.05, high=0.05, size=(4,))


def look(state: np.ndarray) -> Any:
    return state


@njit(cache=True)
def advance(
    action: np.ndarray,  # int64 [B]
    state: np.ndarray,  # f64 [B, 4]
    obs: np.ndarray,  # f32 [B, 4]
    reward: np.ndarray,  # f32 [B]
    flags: np.ndarray,  # bool [2, B]: terminated, truncated
    length: np.ndarray,  # int64 [B] steps of the running episode
    total: np.ndarray,  # f64 [B] its return
    parameters: np.ndarray,
    limits: tuple[int, int, int],  # steps of an episode, envs to step, ends after which to stop
) -> tuple[int, int]:
    """(envs stepped, episodes ended); (−1 − i, …) if the action of env i is none."""
    longest, rows, episodes = limits
    ended = 0
    for i in range(rows):
        if ended >= episodes:
            return i, ended
        if action[i] != 0 and action[i] != 1:
            return -1 - i, ended
        x, v, theta, omega = state[i, 0], state[i, 1], state[i, 2], state[i, 3]
        force = FORCE if action[i] == 1 else -FORCE
        cosine, sine = math.cos(theta), math.sin(theta)
        push = (force + MOMENT * (omega * omega) * sine) / MASS
        turn = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE * (cosine * cosine) / MASS))
        speed_up = push - MOMENT * turn * cosine / MASS
        x, v = x + TAU * v, v + TAU * speed_up
        theta, omega = theta + TAU * omega, omega + TAU * turn
        state[i, 0], state[i, 1], state[i, 2], state[i, 3] = x, v, theta, omega
        for k in range(WIDTH):
            obs[i, k] = state[i, k]
        over = x < -X_LIMIT or x > X_LIMIT or theta < -ANGLE_LIMIT or theta > ANGLE_LIMIT
        length[i] += 1
        late = length[i] >= longest
        gain = parameters[1] if over else parameters[0]
        reward[i] = gain
        total[i] += gain
        flags[0, i], flags[1, i] = over, late
        ended += over or late
    return rows, ended
