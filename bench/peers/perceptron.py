"""Linear layers with an activation between them, as every single file has them."""

from __future__ import annotations

from itertools import pairwise

from torch import nn


def mlp(sizes: list[int], activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        layers += [nn.Linear(inputs, outputs)] + ([activation()] if i < len(sizes) - 2 else [])
    return nn.Sequential(*layers)
