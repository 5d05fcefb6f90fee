"""Distributions of the return: the categorical projection of C51 and the quantile loss of QR-DQN.

    z_i  = z_min + i Δ,  Δ = (z_max − z_min) / (n − 1)                        fixed atoms
    m_i  = Σ_j p_j max(0, 1 − |clip(R + d z_j, z_min, z_max) − z_i| / Δ)      Bellemare et al. 2017, eq. 7
    L    = −Σ_i m_i log p_i(s, a)                                             cross-entropy with m

    u_ij = y_j − θ_i(s, a)                                                    y: quantiles of the target, θ: those learned
    L    = Σ_i mean_j |τ_i − 1{u_ij < 0}| huber_κ(u_ij)                       Dabney et al. 2018, eq. 10
    τ_i  = (2 i + 1) / 2 n                                                    midpoints, i from 0

R and d are the return and discount of each sample, as in `value`. Losses are per sample: `weighted_mean(loss, weight)` makes
them one number. Straight-line torch without branches on data, so that make_fx can trace it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rookery.equations.value import huber


def atoms(low: float, high: float, count: int, device: torch.device | str) -> Tensor:
    """The support z of a categorical distribution of returns, [count]."""
    return torch.linspace(low, high, count, device=device)


def project(probability: Tensor, reward: Tensor, discount: Tensor, low: float, high: float) -> Tensor:
    """The distribution of reward + discount · Z on the atoms of Z: probability […, n], reward and discount […].

    Every atom shares its mass between its two neighbours on the support, by distance; what falls outside goes to the ends.
    """
    count = probability.shape[-1]
    moved = reward.unsqueeze(-1) + discount.unsqueeze(-1) * atoms(low, high, count, probability.device)
    place = ((moved - low) * ((count - 1) / (high - low))).clamp(0.0, count - 1.0)  # […, from]: in units of Δ
    index = torch.arange(count, device=probability.device)
    share = (1.0 - (place.unsqueeze(-2) - index.unsqueeze(-1)).abs()).clamp(min=0.0)  # […, to, from]
    return (share * probability.unsqueeze(-2)).sum(-1)


def midpoints(count: int, device: torch.device | str) -> Tensor:
    """τ of `count` quantiles that share the probability equally, [count]."""
    return (torch.arange(count, device=device) + 0.5) / count


def quantile_huber(quantile: Tensor, target: Tensor, tau: Tensor, kappa: float = 1.0) -> Tensor:
    """Per-sample loss […] of quantile […, n] at tau ([n], or […, n] as in IQN) against target […, m], which gets no gradient."""
    u = target.detach().unsqueeze(-2) - quantile.unsqueeze(-1)  # […, n, m]
    slope = (tau.unsqueeze(-1) - (u.detach() < 0).to(u.dtype)).abs()
    return (slope * huber(u, kappa)).mean(-1).sum(-1)
