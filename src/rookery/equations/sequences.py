"""Targets inside sequences [T, B], as straight-line tensor code:
they depend on networks that are read in the update itself.

    R^1_t = r_t + γ (1 − terminated_t) V(s'_t)
    R^n_t = r_t + γ R^{n−1}_{t+1}                   where row t + 1 goes on with the same episode, else R^1_t

So the sum stops at the end of the episode, of the sequence, or after n steps, whichever is first,
and bootstraps from the true successor there.

It stands alone because `returns` are kernels over recorded values, which no gradient or trace can pass through.
"""

from __future__ import annotations

import torch
from torch import Tensor


def n_step_targets(
    reward: Tensor, next_value: Tensor, terminated: Tensor, done: Tensor, valid: Tensor, gamma: float, n: int
) -> Tensor:
    """R^n [T, B]; next_value is V of each row's true successor. Rows that are not valid get numbers without meaning."""
    bootstrap = reward + gamma * (1.0 - terminated.float()) * next_value
    goes_on = torch.cat([valid[1:].bool() & ~done[:-1].bool(), torch.zeros_like(done[:1]).bool()])
    target = bootstrap
    for _ in range(n - 1):
        following = torch.cat([target[1:], target[-1:]])
        target = torch.where(goes_on, reward + gamma * following, bootstrap)
    return target


def sequence_priority(td: Tensor, valid: Tensor, eta: float) -> Tensor:
    """η max_t |td| + (1 − η) mean_t |td| over the valid rows of each sequence, [B] (Kapturowski 2019, eq. 1)."""
    size, seen = td.abs() * valid.float(), valid.float()
    return eta * size.amax(0) + (1.0 - eta) * size.sum(0) / seen.sum(0).clamp(min=1.0)
