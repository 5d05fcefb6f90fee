"""Distributions of the return: the projection of C51, the quantile loss of QR-DQN,
distorted risk of IQN, fractions of FQF.

    z_i  = z_min + i Δ,  Δ = (z_max − z_min) / (n − 1)                       fixed atoms
    m_i  = Σ_j p_j max(0, 1 − |clip(R + d z_j, z_min, z_max) − z_i| / Δ)     Bellemare et al. 2017, eq. 7
    D_KL = Σ_i m_i (log m_i − log p_i(s, a))                                 cross-entropy with m, less the entropy of m

    u_ij = y_j − θ_i(s, a)                                                  y: quantiles of the target, θ: those learned
    L    = Σ_i mean_j |τ_i − 1{u_ij < 0}| huber_κ(u_ij) / κ                 Dabney et al. 2018, eq. 10; 2018b, eq. 3
    τ_i  = (2 i + 1) / 2 n                                                  midpoints, i from 0

    ∂W₁/∂τ_i = 2 θ(τ_i) − θ(τ̂_i) − θ(τ̂_{i−1})                             Yang et al. 2019, eq. 9: W₁ to n steps at τ̂

Risk measures β: acting on the mean of θ(β(τ)), τ uniform (Dabney et al. 2018b, section 3.2; η is their parameter):

    neutral  τ                                   cvar  η τ                        mean of the worst share η, 0 < η ≤ 1
    cpw      τ^η / (τ^η + (1 − τ)^η)^(1/η)       wang  Φ(Φ⁻¹(τ) + η)              η < 0 is averse to risk
    pow      τ^(1/(1 + |η|)) for η ≥ 0, else 1 − (1 − τ)^(1/(1 + |η|))            η < 0 is averse to risk

R and d are the return and discount of each sample, as in `value`. Losses are per sample: `weighted_mean(loss, weight)`
makes them one number. Straight-line torch without branches on data, so that make_fx can trace it.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from rookery.equations.value import huber, weighted_mean

Risk = Literal["neutral", "cpw", "cvar", "wang", "pow"]


def pick_row(table: Tensor, index: Tensor) -> Tensor:
    """table[…, index[…], :]: all numbers of the actions that index (int64) names."""
    where = index.unsqueeze(-1).unsqueeze(-1).expand(*index.shape, 1, table.shape[-1])
    return table.gather(-2, where).squeeze(-2)


def atoms(low: float, high: float, count: int, device: torch.device | str) -> Tensor:
    """The support z of a categorical distribution of returns, [count]."""
    return torch.linspace(low, high, count, device=device)


def project(probability: Tensor, reward: Tensor, discount: Tensor, low: float, high: float) -> Tensor:
    """The distribution of reward + discount · Z on the atoms of Z: probability […, n], reward and discount […].

    Every atom shares its mass between its two neighbours on the support, by distance;
    what falls outside goes to the ends.
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
    """Per-sample loss […] of quantile […, n] at tau ([n], or […, n] as in IQN) against
    target […, m], which gets no gradient.
    """
    u = target.detach().unsqueeze(-2) - quantile.unsqueeze(-1)  # […, n, m]
    slope = (tau.unsqueeze(-1) - (u.detach() < 0).to(u.dtype)).abs()
    return (slope * huber(u, kappa)).mean(-1).sum(-1) / kappa


def quantile_loss(
    quantile: Tensor, target: Tensor, tau: Tensor, weight: Tensor, kappa: float = 1.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """(mean weighted loss, {loss of each sample [N], q [N]: the mean of its quantiles})."""
    each = quantile_huber(quantile, target, tau, kappa)
    return weighted_mean(each, weight), {"loss": each, "q": quantile.mean(-1)}


def quantile_results(out: dict[str, Tensor], target: Tensor) -> dict[str, Tensor]:
    """Priority and numbers of an update, from what `quantile_loss` found and its target [N, m]."""
    return {
        "priority": out["loss"],
        "q_mean": out["q"].mean(),
        "target_mean": target.mean(),
        "td_abs": (target.mean(-1) - out["q"]).abs().mean(),
    }


def kl_divergence(target: Tensor, log_probability: Tensor) -> Tensor:
    """D_KL(target ‖ probability) […] over the last dimension; mass 0 in the target counts nothing."""
    return (torch.xlogy(target, target) - target * log_probability).sum(-1)


def moved(quantile: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
    """reward + discount · θ: quantile […, n], reward and discount […]."""
    return reward.unsqueeze(-1) + discount.unsqueeze(-1) * quantile


def distort(tau: Tensor, risk: Risk, eta: float) -> Tensor:
    """β(τ): where the quantiles are read that a policy with this attitude to risk averages."""
    if risk == "cpw":
        share = tau**eta
        return share / (share + (1.0 - tau) ** eta) ** (1.0 / eta)
    if risk == "cvar":
        return eta * tau
    if risk == "wang":
        normal = math.sqrt(2.0) * torch.erfinv(2.0 * tau - 1.0) + eta
        return 0.5 * (1.0 + torch.erf(normal / math.sqrt(2.0)))
    if risk == "pow":
        power = 1.0 / (1.0 + abs(eta))
        return tau**power if eta >= 0 else 1.0 - (1.0 - tau) ** power
    return tau


def fraction_gradient(at_tau: Tensor, at_middle: Tensor) -> Tensor:
    """∂W₁/∂τ_i of the inner fractions […, n − 1], from θ there […, n − 1] and at the midpoints τ̂ […, n]."""
    return 2.0 * at_tau - at_middle[..., 1:] - at_middle[..., :-1]
