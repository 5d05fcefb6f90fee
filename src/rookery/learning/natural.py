"""A step along the natural gradient within a trust region (Kakade 2002; Schulman 2015, appendix C).

    g   = ∇ L(θ)                           F = ∇² KL(π_old ‖ π_θ) + d I      at θ = θ_old, d: damping
    x   = F⁻¹ g                            by conjugate gradients, from products F v = ∇ (∇ KL · v) + d v alone
    θ'  = θ − αʲ √(2 δ / xᵀ F x) x         the first j = 0, 1, … with L(θ') < L(θ) and KL ≤ δ; if there is none, θ stays

It looks at numbers to decide what to do next, so it is Python around tensors and never compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rookery.learning.flat import FlatNetwork

Loss = Callable[[Any], Tensor]  # of a module with some numbers; 0-d


@dataclass(frozen=True, slots=True)
class TrustRegion:
    """How far to go, and how hard to try."""

    radius: float  # δ: largest mean KL(π_old ‖ π) of a step
    damping: float  # d, added to the diagonal of the Fisher matrix
    iterations: int  # of conjugate gradients
    backtracks: int  # lengths that are tried
    shrink: float  # α: from one length to the next


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, iterations: int, enough: float = 1e-10
) -> Tensor:
    """x with A x ≈ b, where product(v) = A v for a symmetric, positive A; ends when ‖A x − b‖² < enough."""
    x, rest = torch.zeros_like(b), b.clone()
    direction, size = rest.clone(), rest @ rest
    for _ in range(iterations):
        if size < enough:
            break
        image = product(direction)
        step = size / (direction @ image)
        x, rest = x + step * direction, rest - step * image
        before, size = size, rest @ rest
        direction = rest + (size / before) * direction
    return x


def natural_step(net: FlatNetwork, loss: Loss, divergence: Loss, region: TrustRegion) -> dict[str, Tensor]:
    """Move the network's numbers;
    tells loss, KL, share of the full length (0: none was good), and the gradient's norm.
    """
    parameters = [view.detach().requires_grad_() for view in net.views(net.value)]
    module = net.bound(parameters, net.stats, training=False)
    before = loss(module)
    gradient = _flat(torch.autograd.grad(before, parameters, materialize_grads=True))
    slopes = _flat(torch.autograd.grad(divergence(module), parameters, create_graph=True, materialize_grads=True))

    def product(v: Tensor) -> Tensor:
        rows = torch.autograd.grad(slopes @ v, parameters, retain_graph=True, materialize_grads=True)
        return _flat(rows) + region.damping * v

    direction = conjugate_gradient(product, gradient, region.iterations)
    length = torch.sqrt(2.0 * region.radius / (direction @ product(direction)).clamp(min=1e-12))
    metrics = {"loss": before.detach(), "grad_norm": torch.linalg.vector_norm(gradient)}
    return metrics | _searched(net, (loss, divergence), before.detach(), length * direction, region)


def _searched(
    net: FlatNetwork, judges: tuple[Loss, Loss], before: Tensor, step: Tensor, region: TrustRegion
) -> dict[str, Tensor]:
    start, share, (loss, divergence) = net.value.clone(), 1.0, judges
    with torch.no_grad():
        for _ in range(region.backtracks):
            net.value.copy_(start - share * step)
            after, kl = loss(net.frozen), divergence(net.frozen)
            if after < before and kl <= region.radius:  # NaN is neither
                return {"kl": kl, "step": torch.full_like(kl, share), "improvement": before - after}
            share *= region.shrink
        net.value.copy_(start)
    none = torch.zeros_like(before)
    return {"kl": none, "step": none, "improvement": none}


def _flat(parts: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])
