"""Policy optimisation: the clipped surrogate of PPO, its value loss, and the numbers that watch it.

    ρ = π(a|s) / π_old(a|s) = exp(log_ratio)
    L = −min(ρ A, clip(ρ, 1 − ε, 1 + ε) A)                    Schulman et al. 2017, eq. 7
    L = −max(min(ρ A, clip(ρ, 1 − ε, 1 + ε) A), c A)  if A < 0      dual clip: Ye et al. 2020, eq. 5

Losses are per sample: the caller takes their mean over valid rows. ε may be a number or a 0-d tensor (a knob).
Straight-line torch without branches on data, so that make_fx can trace it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rookery.equations.value import mean_valid, squared

Number = Any  # a float or a 0-d tensor; torch's stubs of clamp know only one of the two at a time


def ppo_policy_loss(log_ratio: Tensor, advantage: Tensor, clip: Number, dual_clip: Number | None = None) -> Tensor:
    """−min(ρ A, clip(ρ, 1 ± clip) A); with dual_clip = c > 1 also at most −c A where A < 0:
    there ρ has no other bound.
    """
    ratio = log_ratio.exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)
    if dual_clip is not None:
        surrogate = torch.where(advantage < 0, torch.maximum(surrogate, dual_clip * advantage), surrogate)
    return -surrogate


def ppo_value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: Number | None = None) -> Tensor:
    """½ (V − target)²; with clip the larger of that and the loss of V moved at most clip from old_value.

    The clipped form is not in the paper; it is that of its authors' code, and its ε has the unit of a return.
    """
    if clip is None:
        return squared(value - target)
    near = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum(squared(value - target), squared(near - target))


def kl_estimate(log_ratio: Tensor) -> Tensor:
    """(ρ − 1) − log ρ per sample of π_old: unbiased for KL(π_old ‖ π), never negative.

    The estimator k3 of Schulman 2020, "Approximating KL divergence".
    """
    return torch.expm1(log_ratio) - log_ratio  # expm1: near ρ = 1 the difference ρ − 1 would lose all its digits


def clip_fraction(log_ratio: Tensor, clip: Number) -> Tensor:
    """1 where |ρ − 1| > clip, else 0; its mean over valid rows is the share of samples that the clipping touches."""
    return (torch.expm1(log_ratio).abs() > clip).to(log_ratio.dtype)


def normalise(x: Tensor, valid: Tensor | None = None, eps: float = 1e-8) -> Tensor:
    """(x − mean) / (std + eps) over the valid rows, 0 at holes; the variance is divided by n, so one sample gives 0.

    In float64 inside: the mean of equal numbers must be that number, or eps would be dwarfed by rounding and noise
    amplified to size 1.
    """
    mean, variance = _moments(x, valid)
    scaled = ((x.to(torch.float64) - mean) / (variance.sqrt() + eps)).to(x.dtype)
    return scaled if valid is None else torch.where(valid.to(torch.bool), scaled, 0.0)


def explained_variance(prediction: Tensor, target: Tensor, valid: Tensor | None = None) -> Tensor:
    """1 − Var(target − prediction) / Var(target): 1 is perfect, 0 a constant's; 0 if the target is constant."""
    _, total = _moments(target, valid)
    _, left = _moments(target.to(torch.float64) - prediction, valid)
    constant = total == 0
    return torch.where(constant, 0.0, 1.0 - left / torch.where(constant, 1.0, total)).to(target.dtype)


def _moments(x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and variance over the valid rows, float64."""
    x = x.to(torch.float64)
    mean = mean_valid(x, valid)
    return mean, mean_valid((x - mean) ** 2, valid)
