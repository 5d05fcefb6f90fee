"""Batch renormalisation (Ioffe 2017): normalises by the batch, and corrects it towards what acting will see.

    learning   y = γ ((x − μ_B) / σ_B · r + d) + β,     r = clip(σ_B / σ, 1/3, 3),   d = clip((μ_B − μ) / σ, ±5)
               μ ← μ + m (μ_B − μ),   σ² ← σ² + m (σ_B² − σ²)                            r and d get no gradient
    reading    y = γ (x − μ) / σ + β

While the layer has learnt fewer than `warmup` times, r = 1 and d = 0: plain batch normalisation, for μ and σ are not
worth anything yet. They are buffers, so they are in every checkpoint and in every copy of the weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

EPSILON = 1e-3  # added to variances
MOST_SCALE, MOST_SHIFT = 3.0, 5.0  # bounds of r and d


class BatchRenorm(nn.Module):
    """Over all leading dimensions, feature by feature; every row of a batch counts, padding too."""

    plain = True  # core.plain

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, features: int, momentum: float = 0.01, warmup: int = 100_000):
        super().__init__()
        self.momentum, self.warmup = momentum, float(warmup)
        self.weight = nn.Parameter(torch.ones(features, device="cpu"))
        self.bias = nn.Parameter(torch.zeros(features, device="cpu"))
        self.register_buffer("mean", torch.zeros(features, device="cpu"))
        self.register_buffer("var", torch.ones(features, device="cpu"))
        self.register_buffer("count", torch.zeros((), device="cpu"))

    def forward(self, x: Tensor) -> Tensor:
        # numbers per feature are multiplied first: there are few of them, and each pass over x costs
        if not self.training:
            return (x - self.mean) * (self.weight / torch.sqrt(self.var + EPSILON)) + self.bias
        var, mean = torch.var_mean(x, tuple(range(x.dim() - 1)), correction=0)
        std = torch.sqrt(var + EPSILON)
        scale, shift = self._corrections(mean.detach(), std.detach())
        self._observe(mean.detach(), var.detach())
        return (x - mean) * (self.weight * scale / std) + (self.weight * shift + self.bias)

    def _corrections(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """r and d."""
        usual, warm = torch.sqrt(self.var + EPSILON), self.count >= self.warmup
        scale = (std / usual).clamp(1.0 / MOST_SCALE, MOST_SCALE)
        shift = ((mean - self.mean) / usual).clamp(-MOST_SHIFT, MOST_SHIFT)
        return torch.where(warm, scale, 1.0), torch.where(warm, shift, 0.0)

    def _observe(self, mean: Tensor, var: Tensor) -> None:
        with torch.no_grad():
            self.mean.copy_(torch.lerp(self.mean, mean, self.momentum))
            self.var.copy_(torch.lerp(self.var, var, self.momentum))
            self.count.copy_((self.count + 1.0).clamp(max=self.warmup))  # no further: float32 would stop counting
