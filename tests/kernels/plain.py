"""Plain twins of the kernels: the definitions, written for the eye and not for speed.

Where a kernel is a backward recursion, its twin is the sum that the paper states, row by row and column by column: the
two share no line and hardly an idea, so they cannot share a mistake. Everything is float64 inside and rounded to
float32 at the end, as in the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Array = np.ndarray


def _episode_from(t: int, b: int, done: Array, valid: Array) -> list[int]:
    """The valid rows of column b from t (itself valid) to the end of its episode or of the column."""
    rows = []
    for row in range(t, len(done)):
        if valid[row, b]:
            rows.append(row)
            if done[row, b]:
                break
    return rows


def _cells(valid: Array) -> Iterator[tuple[int, int]]:
    """(t, b) of every valid row."""
    return ((int(t), int(b)) for t, b in np.argwhere(valid))


def _bootstrap(row: int, b: int, next_value: Array, terminated: Array) -> float:
    """V of the successor; 0 after a terminated row, where there is no successor."""
    return 0.0 if terminated[row, b] else float(next_value[row, b])


def gae(
    gamma: float,
    lam: float,
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    done: Array,
    valid: Array,
) -> Array:
    """A_t = Σ_l (γλ)^l δ_{t+l}."""
    advantage = np.zeros(reward.shape)
    for t, b in _cells(valid):
        for steps, row in enumerate(_episode_from(t, b, done | terminated, valid)):
            delta = float(reward[row, b]) + gamma * _bootstrap(row, b, next_value, terminated) - float(value[row, b])
            advantage[t, b] += (gamma * lam) ** steps * delta
    return advantage.astype(np.float32)


def n_step(
    gamma: float, n: int, reward: Array, next_value: Array, terminated: Array, done: Array, valid: Array
) -> Array:
    """Σ_{i<k} γ^i r_{t+i} + γ^k V(s_{t+k})."""
    target = np.zeros(reward.shape)
    for t, b in _cells(valid):
        window = _episode_from(t, b, done | terminated, valid)[:n]
        target[t, b] = sum(gamma**i * float(reward[row, b]) for i, row in enumerate(window))
        target[t, b] += gamma ** len(window) * _bootstrap(window[-1], b, next_value, terminated)
    return target.astype(np.float32)


def lambda_return(
    gamma: float, lam: float, reward: Array, next_value: Array, terminated: Array, done: Array, valid: Array
) -> Array:
    """(1 − λ) Σ_{k<K} λ^{k−1} G^{(k)} + λ^{K−1} G^{(K)}: the mixture of all n-step returns, K rows to the end."""
    target = np.zeros(reward.shape)
    for t, b in _cells(valid):
        window = _episode_from(t, b, done | terminated, valid)
        rewards = 0.0
        for i, row in enumerate(window):
            rewards += gamma**i * float(reward[row, b])
            k_step = rewards + gamma ** (i + 1) * _bootstrap(row, b, next_value, terminated)
            weight = lam**i if row == window[-1] else (1 - lam) * lam**i
            target[t, b] += weight * k_step
    return target.astype(np.float32)


def vtrace(
    gamma: float,
    rho_max: float,
    c_max: float,
    log_rho: Array,
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    done: Array,
    valid: Array,
) -> tuple[Array, Array]:
    """v_t = V_t + Σ_{s≥t} γ^{s−t} (Π_{t≤i<s} c_i) ρ_s (r_s + γ V'_s − V_s);  A_t = ρ_t (r_t + γ v_{t+1} − V_t)."""
    vs, advantage = np.zeros(reward.shape), np.zeros(reward.shape)
    ratio = np.exp(log_rho.astype(np.float64))
    rho, c = np.minimum(ratio, rho_max), np.minimum(ratio, c_max)
    for t, b in _cells(valid):
        vs[t, b], trace = float(value[t, b]), 1.0
        for row in _episode_from(t, b, done | terminated, valid):
            delta = float(reward[row, b]) + gamma * _bootstrap(row, b, next_value, terminated) - float(value[row, b])
            vs[t, b] += trace * rho[row, b] * delta
            trace *= gamma * c[row, b]
    for t, b in _cells(valid):
        window = _episode_from(t, b, done | terminated, valid)
        ahead = vs[window[1], b] if len(window) > 1 else _bootstrap(t, b, next_value, terminated)
        advantage[t, b] = rho[t, b] * (float(reward[t, b]) + gamma * ahead - float(value[t, b]))
    return vs.astype(np.float32), advantage.astype(np.float32)


def upgo(
    gamma: float, reward: Array, value: Array, next_value: Array, terminated: Array, done: Array, valid: Array
) -> Array:
    """The rewards up to the first later row with a negative δ, and V of that row's observation; else to the end."""
    target = np.zeros(reward.shape)
    for t, b in _cells(valid):
        taken: list[int] = []
        for row in _episode_from(t, b, done | terminated, valid):
            one_step = float(reward[row, b]) + gamma * _bootstrap(row, b, next_value, terminated)
            if taken and one_step < float(value[row, b]):
                break
            taken.append(row)
        target[t, b] = sum(gamma**i * float(reward[row, b]) for i, row in enumerate(taken))
        target[t, b] += gamma ** len(taken) * _bootstrap(taken[-1], b, next_value, terminated)
    return target.astype(np.float32)


def retrace(
    gamma: float,
    lam: float,
    log_rho: Array,
    reward: Array,
    q: Array,
    next_value: Array,
    terminated: Array,
    done: Array,
    valid: Array,
) -> Array:
    """Q_t + Σ_{s≥t} γ^{s−t} (Π_{t<i≤s} c_i) (r_s + γ V'_s − Q_s)."""
    target = np.zeros(reward.shape)
    c = lam * np.minimum(1.0, np.exp(log_rho.astype(np.float64)))
    for t, b in _cells(valid):
        target[t, b], trace = float(q[t, b]), 1.0
        for steps, row in enumerate(_episode_from(t, b, done | terminated, valid)):
            trace *= 1.0 if row == t else c[row, b]
            delta = float(reward[row, b]) + gamma * _bootstrap(row, b, next_value, terminated) - float(q[row, b])
            target[t, b] += gamma**steps * trace * delta
    return target.astype(np.float32)


def successor_values(value: Array, last_value: Array, final_value: Array, final_at: Array, valid: Array) -> Array:
    """The value of the final observation if the row ended, else of the next valid row, else last_value."""
    next_value = np.zeros(value.shape, np.float32)
    ended = {(int(t), int(b)): final_value[k] for k, (t, b) in enumerate(final_at)}
    for t, b in _cells(valid):
        later = [row for row in range(t + 1, len(value)) if valid[row, b]]
        next_value[t, b] = ended.get((t, b), value[later[0], b] if later else last_value[b])
    return next_value
