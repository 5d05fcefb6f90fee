"""Noisy layers: exploration by learned noise on the weights (Fortunato et al. 2018), factorised.

    y = (μ_w + σ_w ⊙ f(ε_out) f(ε_in)ᵀ) x + μ_b + σ_b ⊙ f(ε_out),     f(ε) = sign(ε) √|ε|        eq. 10, 11
      = μ_w x + μ_b + f(ε_out) ⊙ (σ_w (x ⊙ f(ε_in)) + σ_b)                                       as computed here

The noise is an input, not drawn inside: f(ε) lies in two buffers of the layer, which `resample` fills. So a
compiled update sees it like any statistic, a target network has noise of its own, and a checkpoint holds it. The
learner resamples before every update and the trainer before every round; greedy acting reads a twin whose noise
is zero, which leaves μ alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rookery.nets.config import Init

SIGMA = 0.5  # σ₀ of the paper, section 3.2


class Noisy(nn.Module):
    """A linear layer with noise; `weight` and `bias` are μ. Without noise until the first `resample`."""

    plain = True  # core.plain

    eps_in: Tensor
    eps_out: Tensor

    def __init__(self, in_features: int, out_features: int, sigma: float = SIGMA):
        super().__init__()
        bound = 1.0 / math.sqrt(in_features)
        size = (out_features, in_features)
        self.weight = nn.Parameter(torch.empty(size, device="cpu").uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_features, device="cpu").uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full(size, sigma * bound, device="cpu"))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma * bound, device="cpu"))
        self.register_buffer("eps_in", torch.zeros(in_features, device="cpu"))
        self.register_buffer("eps_out", torch.zeros(out_features, device="cpu"))

    def forward(self, x: Tensor) -> Tensor:
        noise = F.linear(x * self.eps_in, self.weight_sigma, self.bias_sigma)
        return F.linear(x, self.weight, self.bias) + self.eps_out * noise


def noisy(
    in_features: int, out_features: int, init: Init = "default", gain: float = 1.0, sigma: float = SIGMA
) -> Noisy:
    """One noisy layer, as heads are; orthogonal initialisation and its gain are those of μ."""
    layer = Noisy(in_features, out_features, sigma)
    if init == "orthogonal":
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return layer


def noise_of(module: nn.Module) -> Iterator[Tensor]:
    """The noise buffers of all noisy layers inside, in order."""
    for part in module.modules():
        if isinstance(part, Noisy):
            yield from (part.eps_in, part.eps_out)


def resample(module: nn.Module, generator: torch.Generator) -> None:
    """New noise for every noisy layer inside, in place, from a generator on the CPU."""
    with torch.no_grad():
        for buffer in noise_of(module):
            eps = torch.randn(buffer.shape, generator=generator, device="cpu")
            buffer.copy_(eps.sign() * eps.abs().sqrt())
