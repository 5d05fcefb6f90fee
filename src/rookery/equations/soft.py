"""Maximum-entropy values: the soft value of discrete actions, and targets without the largest quantiles.

    V(s)       = Σ_a π(a|s) (Q(s, a) − α log π(a|s))                       Christodoulou 2019, eq. 10
    H(π)       = −Σ_a π(a|s) log π(a|s)
    J(α)       = −mean log α (log π(a|s) + H̄)                             Haarnoja 2018b, eq. 18, with log α for α
    z_(1) ≤ z_(2) ≤ … ≤ z_(NM)                                             the quantiles of N critics, pooled and sorted
    {z_(1), …, z_(NM − Nd)}                                                without the Nd largest: Kuznetsov 2020, eq. 8

Straight-line torch without branches on data, so that make_fx can trace it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rookery.equations.distributions import squashed_gaussian

Number = Any  # a float or a 0-d tensor


def squashed_sample(gaussian: tuple[Tensor, Tensor], eps: Tensor) -> tuple[Tensor, Tensor]:
    """`squashed_gaussian` of the (mean, log standard deviation) that a policy gave: (action, its log-probability)."""
    return squashed_gaussian(*gaussian, eps)


def soft_value(q: Tensor, logp: Tensor, alpha: Number) -> Tensor:
    """[…] from q and log-probabilities […, A]; an illegal action (log-probability −1e9) adds exactly 0."""
    return (logp.exp() * (q - alpha * logp)).sum(-1)


def entropy_of(logp: Tensor) -> Tensor:
    """H […] in nats, from log-probabilities […, A]."""
    return -(logp.exp() * logp).sum(-1)


def temperature_loss(log_alpha: Tensor, logp: Tensor, entropy: float) -> Tensor:
    """J(α) of the log-probabilities [N] of the policy's own actions and the wanted entropy H̄:
    α grows where the policy has less.
    """
    return -(log_alpha * (logp + entropy)).mean()


def without_largest(quantiles: Tensor, drop: int) -> Tensor:
    """[…, N (M − drop)] smallest of the pooled quantiles [N, …, M], in increasing order: `drop` fewer per critic."""
    count, each = quantiles.shape[0], quantiles.shape[-1]
    pooled = quantiles.movedim(0, -2).flatten(-2)
    return pooled.sort(-1).values[..., : count * (each - drop)]
