"""Returns and advantages over rows [T, B, …], time first. Called once per batch, without gradient.

    δ_t = r_t + γ V(s_{t+1}) − V(s_t)                                            temporal-difference error

with V(s_{t+1}) = 0 after a *terminated* row only. A *truncated* row still bootstraps: `next_value` is V of the true
successor of its own row (`successor_values` finds it), never of the observation that a reset gave. `done` = terminated
or truncated ends the sum over time and nothing else. The end of the rows without `done` is a cut like truncation.

Rows where `valid` is false are holes: they are skipped, the row before them continues with the next valid row of its
column, an n-step window counts valid rows only, and the result at a hole is 0.

Every function takes numpy arrays or torch tensors, and gives back the kind (and device) of `reward`, in float32,
without gradient. float32 and bool in C order on the CPU are read in place, anything else is converted first. Masks may
also be numbers, 0 or 1. γ and λ are plain numbers.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rookery.core.errors import UsageError
from rookery.kernels import returns as kernels

Rows = np.ndarray | Tensor
Same = TypeVar("Same", np.ndarray, Tensor)  # the result is of the kind of the first argument

_MASKS = {"terminated", "done", "valid"}


def gae(
    reward: Same,
    value: Rows,
    next_value: Rows,
    terminated: Rows,
    done: Rows,
    gamma: float,
    lam: float,
    valid: Rows | None = None,
) -> Same:
    """Generalised advantage A_t = Σ_l (γλ)^l δ_{t+l} (Schulman et al. 2016, eq. 16). A + V is the λ-return."""
    arrays = _aligned(reward=reward, value=value, next_value=next_value, terminated=terminated, done=done, valid=valid)
    return _like(reward, kernels.gae(float(gamma), float(lam), *arrays))


def lambda_return(
    reward: Same, next_value: Rows, terminated: Rows, done: Rows, gamma: float, lam: float, valid: Rows | None = None
) -> Same:
    """G_t = r_t + γ ((1 − λ) V(s_{t+1}) + λ G_{t+1}), the target of TD(λ) (Sutton & Barto 2018, eq. 12.18).

    λ = 0 is the one-step target, λ = 1 the discounted sum of rewards to the cut plus what is bootstrapped there.
    """
    arrays = _aligned(reward=reward, next_value=next_value, terminated=terminated, done=done, valid=valid)
    return _like(reward, kernels.lambda_return(float(gamma), float(lam), *arrays))


def n_step(
    reward: Same, next_value: Rows, terminated: Rows, done: Rows, gamma: float, n: int, valid: Rows | None = None
) -> Same:
    """Σ_{i<k} γ^i r_{t+i} + γ^k V(s_{t+k}), k = the steps really taken (Sutton & Barto 2018, eq. 7.1).

    k < n where the episode or the rows end earlier; the bootstrap is then the next_value of the last row used.
    Rows drawn from a replay (`algo.n_step` of DQN, SAC, …) get the same sum when they are read: `kernels/gather.py`,
    `follow`.
    """
    if n < 1:
        raise UsageError(f"n_step needs n >= 1, got n={n}. n=1 is the ordinary one-step target.")
    arrays = _aligned(reward=reward, next_value=next_value, terminated=terminated, done=done, valid=valid)
    return _like(reward, kernels.n_step(float(gamma), int(n), *arrays))


def vtrace(
    log_rho: Rows,
    reward: Same,
    value: Rows,
    next_value: Rows,
    terminated: Rows,
    done: Rows,
    gamma: float,
    rho_max: float = 1.0,
    c_max: float = 1.0,
    valid: Rows | None = None,
) -> tuple[Same, Same]:
    """(value target v, policy-gradient advantage) from data of another policy μ (Espeholt et al. 2018, eq. 1 and 4.2).

    v_t = V_t + Σ_{s≥t} γ^{s−t} (Π_{t≤i<s} c_i) ρ_s δ_s,   A_t = ρ_t (r_t + γ v_{t+1} − V_t), ρ = min(rho_max, π/μ), c =
    min(c_max, π/μ), log_rho = log π(a|s) − log μ(a|s). On-policy, v is the n-step return to the cut.
    """
    arrays = _aligned(
        reward=reward,
        log_rho=log_rho,
        value=value,
        next_value=next_value,
        terminated=terminated,
        done=done,
        valid=valid,
    )
    arrays[0], arrays[1] = arrays[1], arrays[0]  # `reward` leads the check, log_rho leads the kernel
    vs, advantage = kernels.vtrace(float(gamma), float(rho_max), float(c_max), *arrays)
    return _like(reward, vs), _like(reward, advantage)


def upgo(
    reward: Same,
    value: Rows,
    next_value: Rows,
    terminated: Rows,
    done: Rows,
    gamma: float,
    valid: Rows | None = None,
) -> Same:
    """G_t = r_t + γ G_{t+1} if r_{t+1} + γ V(s_{t+2}) ≥ V(s_{t+1}), else r_t + γ V(s_{t+1}): upgoing policy update.

    The return follows the data as long as they do better than expected (Vinyals et al. 2019, Methods).
    Minus V it is the advantage of the policy gradient, whose importance ratio is the caller's.
    """
    arrays = _aligned(reward=reward, value=value, next_value=next_value, terminated=terminated, done=done, valid=valid)
    return _like(reward, kernels.upgo(float(gamma), *arrays))


def retrace(
    log_rho: Rows,
    reward: Same,
    q: Rows,
    next_value: Rows,
    terminated: Rows,
    done: Rows,
    gamma: float,
    lam: float = 1.0,
    valid: Rows | None = None,
) -> Same:
    """G_t = Q_t + Σ_{s≥t} γ^{s−t} (Π_{t<i≤s} c_i) (r_s + γ V_{s+1} − Q_s),
    c = λ min(1, π/μ) (Munos et al. 2016, eq. 3, 4).

    q is Q(s_t, a_t) of the actions in the data, next_value V = E_{a~π} Q(s_{t+1}, a),
    log_rho = log π(a|s) − log μ(a|s). λ = 0 is expected SARSA.
    """
    arrays = _aligned(
        reward=reward, log_rho=log_rho, q=q, next_value=next_value, terminated=terminated, done=done, valid=valid
    )
    arrays[0], arrays[1] = arrays[1], arrays[0]  # `reward` leads the check, log_rho leads the kernel
    return _like(reward, kernels.retrace(float(gamma), float(lam), *arrays))


def successor_values(
    value: Same, last_value: Rows, final_value: Rows, final_at: Rows, valid: Rows | None = None
) -> Same:
    """V of each row's true successor [T, B], from the values of a chunk's `obs`, `last_obs` [B] and `final_obs` [K].

    An ended row (listed in final_at [K, 2]) takes its final value; any other that of the next valid row, and the last
    one last_value. Without `valid` the observation of a hole counts as a successor, which is the same as long as a hole
    keeps the observation that was waiting to be acted on.
    """
    values, mask = _numbers(value), None if valid is None else _mask(valid)
    last, final = _numbers(last_value), _numbers(final_value)
    at = final_at.detach().cpu().numpy() if isinstance(final_at, Tensor) else np.asarray(final_at)
    at = np.ascontiguousarray(at, np.int64)
    got = {"last_value": last.shape, "final_value": final.shape, "final_at": at.shape}
    expected = {"last_value": values.shape[1:], "final_value": at.shape[:1], "final_at": (at.shape[0], 2)}
    if mask is None:
        mask = np.ones(values.shape, np.bool_)
    if values.ndim != 2 or got != expected or mask.shape != values.shape:
        raise UsageError(
            "successor_values expects value [T, B], last_value [B], final_value [K], final_at [K, 2] and valid [T, B], "
            f"got value {values.shape}, {', '.join(f'{name} {shape}' for name, shape in got.items())}, "
            f"valid {mask.shape}."
        )
    try:
        return _like(value, kernels.successor_values(values, last, final, at, mask))
    except IndexError as error:
        raise UsageError(
            f"final_at names (row, column) from {at.min(0).tolist()} to {at.max(0).tolist()}, but value has "
            f"{values.shape[0]} rows and {values.shape[1]} columns. Was final_at re-based when chunks were joined?"
        ) from error


def _numbers(x: Rows) -> np.ndarray:
    return _plain_memory(np.ascontiguousarray(_array(x, torch.float32), np.float32))


def _mask(x: Rows) -> np.ndarray:
    return _plain_memory(np.ascontiguousarray(_array(x, torch.bool), np.bool_))


def _array(x: Rows, dtype: torch.dtype) -> np.ndarray:
    if not isinstance(x, Tensor):
        return x
    if (
        x.dtype != dtype or x.requires_grad or not x.is_cpu
    ):  # asking is ten times cheaper than detach().to() that do nothing
        x = x.detach().to("cpu", dtype)
    return x.numpy()


def _plain_memory(x: np.ndarray) -> np.ndarray:
    """A read-only array is another type to numba, which would compile every kernel again for it: copying is cheaper."""
    return x if x.flags.writeable else x.copy()


def _aligned(**fields: Any) -> list[np.ndarray]:
    """The fields as [T, B'] arrays that numba reads in place, B' = all dimensions after time; None means true."""
    shape = tuple(fields["reward"].shape)
    if not shape:
        raise UsageError("reward must have time as its first dimension, got a single number.")
    flat = (shape[0], math.prod(shape[1:]))
    arrays = []
    for name, field in fields.items():
        if field is None:
            arrays.append(np.ones(flat, np.bool_))
            continue
        array = _mask(field) if name in _MASKS else _numbers(field)
        if array.shape != shape:
            raise UsageError(
                f"{name} has shape {array.shape}, but reward has {shape}: every field needs one number per row."
            )
        arrays.append(array if len(shape) == 2 else array.reshape(flat))
    return arrays


def _like(reference: Any, result: np.ndarray) -> Any:
    result = result.reshape(reference.shape)
    return torch.from_numpy(result).to(reference.device) if isinstance(reference, Tensor) else result
