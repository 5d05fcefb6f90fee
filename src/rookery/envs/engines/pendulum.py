"""The pendulum that is to be swung up, B of them in one call. θ = 0 is upright, the torque u lies in [−2, 2].

    r = −(θ² + 0.1 ω² + 0.001 u²)                               θ taken in [−π, π), all of it before the step
    ω ← clip(ω + (3 g / (2 l) sin θ + 3 / (m l²) u) dt, ±8)     m = l = 1, dt = 0.05
    θ ← θ + ω dt                                                with the new ω

The observation is (cos θ, sin θ, ω). It ends only at its time limit. The order of operations and their precision
are those of gymnasium's PendulumEnv under numpy 2, so that the bits are equal too: the torque and what is
multiplied by it alone are float32, the rest is float64; squares are taken by `pow`, which differs from a product in
the last bit once in a thousand times.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

WIDTH = 2  # numbers of the physical state: θ, ω
ENTRY_POINT = "gymnasium.envs.classic_control.pendulum:PendulumEnv"
TORQUE, SPEED, DT = np.float32(2.0), 8.0, 0.05
EFFORT, DRIVE = np.float32(0.001), np.float32(3.0)  # the cost of u², 3 / (m l²)


def parameters(g: float = 10.0) -> np.ndarray:
    """[3 g / (2 l), the exponent of a square: a constant in the kernel would be turned into a product]."""
    return np.array([3 * g / 2.0, 2.0])


def start(generator: np.random.Generator) -> tuple[float, float]:
    return generator.uniform(-np.pi, np.pi), generator.uniform(-1.0, 1.0)  # one draw of two costs four times as much


def look(state: np.ndarray) -> tuple[float, float, float]:
    return np.cos(state[0]), np.sin(state[0]), state[1]


@njit(cache=True)
def advance(
    action: np.ndarray,  # f32 [B, 1]
    state: np.ndarray,  # f64 [B, 2]
    obs: np.ndarray,  # f32 [B, 3]
    reward: np.ndarray,  # f32 [B]
    flags: np.ndarray,  # bool [2, B]: terminated, truncated
    length: np.ndarray,  # int64 [B] steps of the running episode
    total: np.ndarray,  # f64 [B] its return
    parameters: np.ndarray,
    limits: tuple[int, int, int],  # steps of an episode, envs to step, ends after which to stop
) -> tuple[int, int]:
    """(envs stepped, episodes ended); (−1 − i, …) if the action of env i is not a number."""
    longest, rows, episodes = limits
    gravity, two = parameters[0], parameters[1]
    ended = 0
    for i in range(rows):
        if ended >= episodes:
            return i, ended
        if math.isnan(action[i, 0]):
            return -1 - i, ended
        torque = min(max(action[i, 0], -TORQUE), TORQUE)
        theta, omega = state[i, 0], state[i, 1]
        cost = math.pow(_upright(theta), two) + 0.1 * math.pow(omega, two) + EFFORT * math.pow(torque, np.float32(two))
        omega = omega + (gravity * math.sin(theta) + DRIVE * torque) * DT
        omega = min(max(omega, -SPEED), SPEED)
        theta = theta + omega * DT
        state[i, 0], state[i, 1] = theta, omega
        obs[i, 0], obs[i, 1], obs[i, 2] = math.cos(theta), math.sin(theta), omega
        length[i] += 1
        late = length[i] >= longest
        reward[i] = -cost
        total[i] += -cost
        flags[0, i], flags[1, i] = False, late
        ended += late
    return rows, ended


@njit(cache=True)
def _upright(angle: float) -> float:
    """The angle in [−π, π)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi
