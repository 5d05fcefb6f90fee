"""Blocks of `model.layers` that are more than one layer. They keep the shape of what they see, but for embeddings.

    residual      x + W₂ σ(W₁ σ(x))                               of features; 3 × 3 convolutions of images   (He 2016)
    transformer   t ← t + p;  t ← t + attend(norm t);  t ← t + W₂ σ(W₁ norm t)    tokens t: the places of an image, or
                  equal parts of the features; p learned places                   (Vaswani 2017, norm in front)
    embedding     a learned vector for each value of a discrete observation

They stand apart from `layers`, which reads the config and infers sizes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rookery.core.spec import Leaf
from rookery.nets.config import Init
from rookery.nets.modules import ACTIVATIONS, HIDDEN_GAIN, linear, orthogonal_


class Residual(nn.Module):
    """[..., *shape] → the same shape: features (n,) or images (C, H, W)."""

    plain = True  # core.plain

    def __init__(self, shape: tuple[int, ...], size: int, activation: str, init: Init):
        super().__init__()
        self.activation = ACTIVATIONS[activation]()
        if len(shape) == 1:
            self.first: nn.Module = linear(shape[0], size, init, HIDDEN_GAIN)
            self.second: nn.Module = linear(size, shape[0], init)
        else:
            self.first = nn.Conv2d(shape[0], size, 3, padding=1, device="cpu")
            self.second = nn.Conv2d(size, shape[0], 3, padding=1, device="cpu")
            if init == "orthogonal":
                orthogonal_(self.first, HIDDEN_GAIN)
                orthogonal_(self.second, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.activation(self.first(self.activation(x))))


class Transformer(nn.Module):
    """Features [..., n] as `tokens` parts, or images [N, C, H, W] as H · W places, attend to one another."""

    plain = True  # core.plain

    def __init__(self, tokens: int, width: int, heads: int, activation: str, *, images: bool):
        super().__init__()
        self.tokens, self.width, self.heads, self.images = tokens, width, heads, images
        self.place = nn.Parameter(torch.randn(tokens, width, device="cpu") * 0.02)
        self.norm, self.norm_after = nn.LayerNorm(width, device="cpu"), nn.LayerNorm(width, device="cpu")
        self.read, self.out = nn.Linear(width, 3 * width, device="cpu"), nn.Linear(width, width, device="cpu")
        self.wide, self.narrow = nn.Linear(width, 4 * width, device="cpu"), nn.Linear(4 * width, width, device="cpu")
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor) -> Tensor:
        t = x.flatten(-2).transpose(-1, -2) if self.images else x.unflatten(-1, (self.tokens, self.width))
        t = t + self.place
        t = t + self._attended(self.norm(t))
        t = t + self.narrow(self.activation(self.wide(self.norm_after(t))))
        return t.transpose(-1, -2).reshape(x.shape) if self.images else t.flatten(-2)

    def _attended(self, t: Tensor) -> Tensor:
        split = self.read(t).unflatten(-1, (3, self.heads, self.width // self.heads))  # [..., K, 3, H, d]
        q, k, v = split.movedim(-4, -2).unbind(-4)  # [..., H, K, d]
        shares = (q @ k.transpose(-1, -2) / math.sqrt(self.width // self.heads)).softmax(-1)
        return self.out((shares @ v).movedim(-3, -2).flatten(-2))


class Embedding(nn.Module):
    """Discrete values [...], or [..., k] of k choices → vectors side by side, [..., out_features]."""

    plain = True  # core.plain

    def __init__(self, leaf: Leaf, size: int):
        super().__init__()
        self.single = leaf.kind == "discrete"
        self.tables = nn.ModuleList(nn.Embedding(n, size, device="cpu") for n in leaf.sizes)
        self.out_features = size * len(leaf.sizes)

    def forward(self, x: Tensor) -> Tensor:
        if self.single:
            return self.tables[0](x)
        return torch.cat([table(part) for table, part in zip(self.tables, x.unbind(-1))], -1)
