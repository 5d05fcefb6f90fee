"""MPE's simple_spread (Lowe 2017), B of them in one call: N agents push themselves to N landmarks, and each other away.

    f  = 5 u + Σ over others of ±100 Δ / |Δ| · k softplus((0.3 − |Δ|) / k)       k = 0.001, radii 0.15
    x ← x + 0.1 v,  v ← 0.75 v + 0.1 f                                           x with the old v
    reward = (1 − λ) (−Σ over landmarks of the distance of the nearest agent) − λ (agents that touch it)

The order of operations is that of mpe2 1.1, so that the bits are equal too; `exp` and `log1p` are those of the C
library, as numpy's.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numba import njit

from rookery.core.errors import ConfigError

TASK = "mpe2.simple_spread.simple_spread"
TOUCH = 0.15 + 0.15  # distance of two agents
MARGIN, STIFFNESS, SENSITIVITY = 1e-3, 1e2, 5.0
STEP, KEPT = 0.1, 1 - 0.25  # time of a step, share of the speed that is left after it
COVERED = 0.1  # distance of a landmark with `terminate_on_success`
LOG_2 = 0.6931471805599453


def made_by(target: Any) -> bool:
    module = sys.modules.get(TASK)  # whoever has the target has imported it
    return module is not None and target is module.parallel_env


def parameters(
    model: Any,
    N: int = 3,
    local_ratio: float = 0.5,
    max_cycles: int = 25,
    continuous_actions: bool = False,
    terminate_on_success: bool = False,
    dynamic_rescaling: bool = True,  # of pictures
    **others: Any,
) -> np.ndarray:
    """[share of what an agent caused itself, steps of an episode, whether covering all landmarks ends it]."""
    if unknown := {key: value for key, value in others.items() if value}:
        raise ConfigError(
            f"env.kwargs={unknown}: the native engine knows N, local_ratio, max_cycles, continuous_actions and "
            "terminate_on_success of simple_spread. Use env.engine=gymnasium"
        )
    return np.array([local_ratio, max_cycles, bool(terminate_on_success)], np.float64)


def start(seed: int | None, agents: int) -> np.ndarray:
    """[positions of agents, of landmarks, velocities of agents], two numbers each."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    return np.concatenate([generator.uniform(-1, 1, 4 * agents), np.zeros(2 * agents)])


@njit(cache=True)
def look(rows: np.ndarray, physics: np.ndarray, own: np.ndarray, state: np.ndarray, place: np.ndarray) -> None:
    """What is seen in these envs."""
    for i in rows:
        _observe(i, physics[i], own, state, place)


@njit(cache=True)
def _observe(i: int, body: np.ndarray, own: np.ndarray, state: np.ndarray, place: np.ndarray) -> None:
    """Own velocity and position, where landmarks and others are from there, zeros for what nobody says."""
    agents, width = own.shape[1], own.shape[2]
    for k in range(agents):
        seen = own[i, place[k]]
        x, y = body[2 * k], body[2 * k + 1]
        seen[0], seen[1] = body[4 * agents + 2 * k], body[4 * agents + 2 * k + 1]
        seen[2], seen[3] = x, y
        c = 4
        for other in range(2 * agents):
            body_of = other + agents if other < agents else other - agents  # landmarks come first
            if body_of != k:
                seen[c], seen[c + 1] = body[2 * body_of] - x, body[2 * body_of + 1] - y
                c += 2
        for c in range(width):
            state[i, k * width + c] = seen[c]


@njit(cache=True)
def _push(action: np.ndarray, i: int, place: np.ndarray, force: np.ndarray) -> bool:
    """The forces that the agents choose; whether all of them are some."""
    for k in range(len(place)):
        x, y = 0.0, 0.0
        if action.ndim == 2:  # a choice: nothing, left, right, down, up
            chosen = action[i, place[k]]
            if chosen < 0 or chosen > 4:
                return False
            x = -1.0 if chosen == 1 else 1.0 if chosen == 2 else 0.0
            y = -1.0 if chosen == 3 else 1.0 if chosen == 4 else 0.0
        else:  # how much of each
            pushes = action[i, place[k]]
            for c in range(5):
                if math.isnan(pushes[c]):
                    return False
            x += _within(pushes[2]) - _within(pushes[1])
            y += _within(pushes[4]) - _within(pushes[3])
        force[k, 0], force[k, 1] = x * SENSITIVITY + 0.0, y * SENSITIVITY + 0.0
    return True


@njit(cache=True)
def _within(value: Any) -> Any:
    """f32, as it came."""
    return min(max(value, np.float32(0.0)), np.float32(1.0))


@njit(cache=True)
def _distance(body: np.ndarray, a: int, b: int) -> float:
    x, y = body[2 * a] - body[2 * b], body[2 * a + 1] - body[2 * b + 1]
    return math.sqrt(x * x + y * y)


@njit(cache=True)
def _softplus(y: float) -> float:
    """log(1 + eʸ), as np.logaddexp(0, y) has it."""
    if y == 0.0:
        return LOG_2
    return math.log1p(math.exp(y)) if y < 0.0 else y + math.log1p(math.exp(-y))


@njit(cache=True, error_model="numpy")
def _move(body: np.ndarray, force: np.ndarray) -> bool:
    """Collisions, then everybody moves; whether all numbers are finite."""
    agents, sound = len(force), True
    for a in range(agents):
        for b in range(a + 1, agents):
            distance = _distance(body, a, b)
            inside = _softplus(-(distance - TOUCH) / MARGIN) * MARGIN
            for c in range(2):
                away = STIFFNESS * (body[2 * a + c] - body[2 * b + c]) / distance * inside
                force[a, c] = away + force[a, c]
                force[b, c] = -away + force[b, c]
    for k in range(agents):
        for c in range(2):
            at, speed = 2 * k + c, 4 * agents + 2 * k + c
            body[at] += body[speed] * STEP
            body[speed] = body[speed] * KEPT + force[k, c] * STEP
            sound = sound and math.isfinite(body[speed])
    return sound


@njit(cache=True)
def _pay(body: np.ndarray, place: np.ndarray, share: float, reward: np.ndarray) -> bool:
    """The rewards of all agents; whether every landmark is covered."""
    agents, common, covered = len(place), 0.0, True
    for landmark in range(agents, 2 * agents):
        nearest = _distance(body, 0, landmark)
        for k in range(1, agents):
            nearest = min(nearest, _distance(body, k, landmark))
        common -= nearest
        covered = covered and nearest < COVERED
    for k in range(agents):
        alone = 0.0
        for other in range(agents):
            if other != k and _distance(body, other, k) < TOUCH:
                alone -= 1.0
        reward[place[k]] = 0.0 + (common * (1 - share) + alone * share)
    return covered


@njit(cache=True)
def advance(
    action: np.ndarray,  # int64 [B, N], or f32 [B, N, 5]
    physics: np.ndarray,  # f64 [B, 6 N]
    own: np.ndarray,  # f32 [B, N, 8 N …]
    state: np.ndarray,  # f32 [B, …]: what all see, side by side
    reward: np.ndarray,  # f64 [B, N]
    flags: np.ndarray,  # bool [3, B]: terminated, truncated, the task itself is over
    length: np.ndarray,  # int64 [B] steps of the running episode
    place: np.ndarray,  # int64 [N]: column of every agent
    parameters: np.ndarray,
    limits: tuple[int, int, int],  # steps of an episode, envs to step, ends after which to stop
) -> tuple[int, int]:
    """(envs stepped, episodes ended); (−1 − i, …) if an action of env i is none, or what follows from it is not
    finite."""
    longest, rows, episodes = limits
    force = np.zeros((len(place), 2))
    ended = 0
    for i in range(rows):
        if ended >= episodes:
            return i, ended
        if not _push(action, i, place, force) or not _move(physics[i], force):
            return -1 - i, ended
        covered = _pay(physics[i], place, parameters[0], reward[i])
        _observe(i, physics[i], own, state, place)
        length[i] += 1
        done = length[i] >= parameters[1]
        covered = covered and not done and parameters[2] != 0.0
        late = not covered and (done or length[i] >= longest)
        flags[0, i], flags[1, i], flags[2, i] = covered, late, done or covered
        ended += covered or late
    return rows, ended
