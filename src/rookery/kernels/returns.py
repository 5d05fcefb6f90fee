"""Returns and advantages over [T, B], time first: the recursions behind `rookery.equations.returns`, compiled by numba.

Common to all kernels
* Arrays are C-contiguous: float32 numbers, bool masks. A new array is returned and no input is written.
* A row with `valid` false is a hole: it is skipped, whatever it contains (also NaN), and its output is 0. The row
  before it continues with the next valid row of its column.
* `next_value` is V of the true successor of its own row, also where an episode was cut (`done` without `terminated`)
  and where the column ends. Where `terminated` it is not even read, so it may be anything.
* Numbers accumulate in float64 (γ is one anyway) and are rounded to float32 once, when written: a long column with γ
  near 1 loses nothing, and the twin, which sums in another order, agrees to the last bit of float32 or the one beside
  it.

No `fastmath` and no `parallel` (both change bits). Callees must stay in this file: numba's cache notices changes in the
file of the outermost function only.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def gae(
    gamma: float,
    lam: float,
    reward: np.ndarray,
    value: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    done: np.ndarray,
    valid: np.ndarray,
) -> np.ndarray:
    """A_t = δ_t + γλ A_{t+1} within an episode."""
    rows, columns = reward.shape
    advantage = np.zeros((rows, columns), np.float32)
    following = np.zeros(columns, np.float64)  # A of the next valid row of each column
    for t in range(rows - 1, -1, -1):
        for b in range(columns):
            if not valid[t, b]:
                continue
            delta = np.float64(reward[t, b]) - np.float64(value[t, b])
            if not terminated[t, b]:
                delta += gamma * np.float64(next_value[t, b])
                if not done[t, b]:
                    delta += gamma * lam * following[b]
            following[b] = delta
            advantage[t, b] = delta
    return advantage


@njit(cache=True)
def lambda_return(
    gamma: float,
    lam: float,
    reward: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    done: np.ndarray,
    valid: np.ndarray,
) -> np.ndarray:
    """G_t = r_t + γ ((1 − λ) V'_t + λ G_{t+1}) within an episode, r_t + γ V'_t where it was cut."""
    rows, columns = reward.shape
    target = np.zeros((rows, columns), np.float32)
    following = np.zeros(columns, np.float64)  # G of the next valid row of each column
    is_last = np.ones(columns, np.bool_)  # no valid row follows in this column
    for t in range(rows - 1, -1, -1):
        for b in range(columns):
            if not valid[t, b]:
                continue
            total = np.float64(reward[t, b])
            if not terminated[t, b]:
                ahead = np.float64(next_value[t, b])
                if not (done[t, b] or is_last[b]):
                    ahead = (1.0 - lam) * ahead + lam * following[b]
                total += gamma * ahead
            following[b] = total
            is_last[b] = False
            target[t, b] = total
    return target


@njit(cache=True)
def n_step(
    gamma: float,
    n: int,
    reward: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    done: np.ndarray,
    valid: np.ndarray,
) -> np.ndarray:
    """Σ_{i<k} γ^i r + γ^k V' of the last row used, with k ≤ n the number of valid rows really taken."""
    rows, columns = reward.shape
    target = np.zeros((rows, columns), np.float32)
    taken = np.empty(rows, np.int64)  # the valid rows of the current column
    for b in range(columns):
        count = 0
        for t in range(rows):
            if valid[t, b]:
                taken[count] = t
                count += 1
        for i in range(count):
            total = 0.0
            discount = 1.0
            last = taken[i]
            for j in range(i, min(i + n, count)):
                last = taken[j]
                total += discount * np.float64(reward[last, b])
                discount *= gamma
                if done[last, b] or terminated[last, b]:
                    break
            if not terminated[last, b]:
                total += discount * np.float64(next_value[last, b])
            target[taken[i], b] = total
    return target


@njit(cache=True)
def vtrace(
    gamma: float,
    rho_max: float,
    c_max: float,
    log_rho: np.ndarray,
    reward: np.ndarray,
    value: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    done: np.ndarray,
    valid: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """v_t − V_t = δ_t + γ c_t (v_{t+1} − V_{t+1});  A_t = ρ_t (r_t + γ v_{t+1} − V_t)."""
    rows, columns = reward.shape
    vs, advantage = np.zeros((rows, columns), np.float32), np.zeros((rows, columns), np.float32)
    following_vs, following_correction = np.zeros(columns), np.zeros(columns)  # v and v − V of the next valid row
    is_last = np.ones(columns, np.bool_)
    for t in range(rows - 1, -1, -1):
        for b in range(columns):
            if not valid[t, b]:
                continue
            ratio = np.exp(np.float64(log_rho[t, b]))
            rho = rho_max if ratio > rho_max else ratio  # not min(): a NaN must come out as NaN, to be seen
            c = c_max if ratio > c_max else ratio
            delta = np.float64(reward[t, b]) - np.float64(value[t, b])  # r + γ V' − V
            error, correction = delta, 0.0  # error: r + γ v' − V
            if not terminated[t, b]:
                ahead = np.float64(next_value[t, b])
                delta += gamma * ahead
                if not (done[t, b] or is_last[b]):
                    ahead = following_vs[b]
                    correction = gamma * c * following_correction[b]
                error += gamma * ahead
            correction += rho * delta
            following_correction[b] = correction
            following_vs[b] = np.float64(value[t, b]) + correction
            is_last[b] = False
            vs[t, b] = following_vs[b]
            advantage[t, b] = rho * error
    return vs, advantage


@njit(cache=True)
def upgo(
    gamma: float,
    reward: np.ndarray,
    value: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    done: np.ndarray,
    valid: np.ndarray,
) -> np.ndarray:
    """G_t = r_t + γ G_{t+1} where the next row's own δ is not negative,
    r_t + γ V'_t where it is or the episode was cut.
    """
    rows, columns = reward.shape
    target = np.zeros((rows, columns), np.float32)
    following = np.zeros(columns, np.float64)  # G of the next valid row of each column
    surprise = np.zeros(columns, np.float64)  # its δ = r + γ V' − V
    is_last = np.ones(columns, np.bool_)
    for t in range(rows - 1, -1, -1):
        for b in range(columns):
            if not valid[t, b]:
                continue
            total = one_step = np.float64(reward[t, b])
            if not terminated[t, b]:
                ahead = np.float64(next_value[t, b])
                one_step += gamma * ahead
                if not (done[t, b] or is_last[b]):
                    if surprise[b] >= 0.0:
                        ahead = following[b]
                    elif not surprise[b] < 0.0:
                        ahead = surprise[b]  # a NaN must come out as NaN, to be seen
                total += gamma * ahead
            following[b], surprise[b] = total, one_step - np.float64(value[t, b])
            is_last[b] = False
            target[t, b] = total
    return target


@njit(cache=True)
def retrace(
    gamma: float,
    lam: float,
    log_rho: np.ndarray,
    reward: np.ndarray,
    q: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    done: np.ndarray,
    valid: np.ndarray,
) -> np.ndarray:
    """G_t = r_t + γ (V'_t + c_{t+1} (G_{t+1} − Q_{t+1})) within an episode, with c = λ min(1, ρ)."""
    rows, columns = reward.shape
    target = np.zeros((rows, columns), np.float32)
    following = np.zeros(columns, np.float64)  # c (G − Q) of the next valid row of each column
    for t in range(rows - 1, -1, -1):
        for b in range(columns):
            if not valid[t, b]:
                continue
            ratio = np.exp(np.float64(log_rho[t, b]))
            c = lam * (1.0 if ratio > 1.0 else ratio)  # not min(): a NaN must come out as NaN, to be seen
            total = np.float64(reward[t, b])
            if not terminated[t, b]:
                total += gamma * np.float64(next_value[t, b])
                if not done[t, b]:
                    total += gamma * following[b]
            following[b] = c * (total - np.float64(q[t, b]))
            target[t, b] = total
    return target


@njit(cache=True)
def successor_values(
    value: np.ndarray, last_value: np.ndarray, final_value: np.ndarray, final_at: np.ndarray, valid: np.ndarray
) -> np.ndarray:
    """V of each row's successor: its final observation if it ended, else the next valid row, else last_value."""
    rows, columns = value.shape
    next_value = np.zeros((rows, columns), np.float32)
    following = last_value.copy()
    for t in range(rows - 1, -1, -1):
        for b in range(columns):
            if valid[t, b]:
                next_value[t, b] = following[b]
                following[b] = value[t, b]
    for k in range(final_at.shape[0]):
        t, b = final_at[k, 0], final_at[k, 1]
        if t < 0 or t >= rows or b < 0 or b >= columns:  # numba checks no bounds: this would write into foreign memory
            raise IndexError("final_at points outside the rows and columns of value")
        if valid[t, b]:
            next_value[t, b] = final_value[k]
    return next_value
