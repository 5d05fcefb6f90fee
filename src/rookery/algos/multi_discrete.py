"""Choices: value-based learning of one discrete choice, or of several at once (multi-discrete actions).

    one choice     Q [..., A]         action [...]
    K choices      Q [..., K, A]      action [..., K]     A: the most that any of them has; the others are filled up

Each of K choices has a head of its own and learns as if it were alone, y_k = R + γ max_a Q_k(s', a), and the loss is
the mean over them. A sample's priority is the mean of theirs. What fills a choice up is forbidden by its mask.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from rookery.acting.rules import EpsilonGreedy, EpsilonGreedyParts, Rule
from rookery.core.spec import Leaf, mask_of
from rookery.core.tree import Tree, leaves
from rookery.equations.distributions import legal


class Choices:
    """What the algorithms of the DQN family ask about their action space; for one choice it changes nothing."""

    def __init__(self, leaf: Leaf):
        self.sizes, self.several = leaf.sizes, leaf.kind == "multi_discrete"
        self.most = max(leaf.sizes, default=0)

    @property
    def actions(self) -> int | tuple[int, ...]:
        """For a network: the number of actions, or of those of every choice."""
        return self.sizes if self.several else self.sizes[0]

    def rule(self, spread: float, column: int, columns: int | None) -> Rule:
        """ε-greedy acting, of every choice by itself."""
        one = EpsilonGreedy(spread, column, columns)
        return EpsilonGreedyParts(one, self.sizes) if self.several else one

    def mask(self, obs: Tree) -> Tensor | None:
        """1 where Q [..., A] or [..., K, A] is that of a legal action; None: everywhere."""
        mask = mask_of(obs)
        if not self.several:
            return mask
        if mask is None:
            device = leaves(obs)[0].device
            same = len(set(self.sizes)) == 1
            return None if same else self._filled([torch.ones(n, dtype=torch.bool, device=device) for n in self.sizes])
        return self._filled([legal(part) for part in mask.split(list(self.sizes), -1)])

    def real(self, q: Tensor) -> Tensor:
        """Q with −∞ where it only fills a choice up."""
        if not self.several or len(set(self.sizes)) == 1:
            return q
        there = self._filled([torch.ones(n, dtype=torch.bool, device=q.device) for n in self.sizes])
        return q.masked_fill(~there, -torch.inf)

    def _filled(self, parts: list[Tensor]) -> Tensor:
        return torch.stack([F.pad(part, (0, self.most - part.shape[-1])) for part in parts], -2)

    def each(self, *rows: Tensor) -> tuple[Tensor, ...]:
        """Numbers of samples [...] as those of each of their choices, [..., 1] beside [..., K]."""
        return tuple(x.unsqueeze(-1) for x in rows) if self.several else rows

    def together(self, x: Tensor) -> Tensor:
        """One number per sample from those of its choices."""
        return x.mean(-1) if self.several else x

    def apart(self, x: Tensor) -> Tensor:
        """Numbers [..., N] that all choices of a sample share, as [..., 1, N]."""
        return x.unsqueeze(-2) if self.several else x

    def by_part(self, returns: Callable[..., Tensor], *values: Tensor) -> Tensor:
        """returns(*values) of numbers [...], or for each choice of numbers [..., K] by itself."""
        if not self.several:
            return returns(*values)
        return torch.stack([returns(*part) for part in zip(*(x.unbind(-1) for x in values))], -1)
