"""Networks for distributions of the return, [..., A, N]: N numbers for every action.

dueling   x_i(s, a) = V_i(s) + A_i(s, a) − mean_a' A_i(s, a')         for each of the N numbers (Hessel 2018, section 3)
implicit  Z_τ(s, ·) = head(ψ(s) ⊙ φ(τ)),     φ(τ) = relu(W [cos(π i τ)]_{i<n} + b)          Dabney 2018b, eq. 4
fractions p = softmax(P ψ(s)),     τ_i = Σ_{j<i} p_j,     τ̂_i = (τ_i + τ_{i+1}) / 2         Yang 2019, section 3.2
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rookery.core.tree import Tree
from rookery.nets.build import build_encoder
from rookery.nets.config import ModelConfig
from rookery.nets.heads import Dueling, Parts
from rookery.nets.modules import linear
from rookery.nets.noisy import noisy as noisy_layer


class AtomNetwork(nn.Module):
    """N numbers per action [..., A, N], or [..., K, A, N] of K choices, whose sizes `actions` then lists: logits of
    fixed atoms, or quantiles at fixed fractions.
    """

    plain = True  # core.plain

    def __init__(
        self,
        obs_spec: Tree,
        actions: int | tuple[int, ...],
        count: int,
        config: ModelConfig,
        dueling: bool = False,
        noisy: bool = False,
    ):
        super().__init__()
        self.encoder = build_encoder(obs_spec, config)
        self.dueling, width = dueling, self.encoder.out_features
        if not isinstance(actions, int):
            self.parts = True
            self.head: nn.Module = Parts(width, actions, config.init, dueling=dueling, noisy=noisy, count=count)
            return
        self.parts, self.shape = False, (actions + dueling, count)  # dueling: V in front of the advantages
        layer = noisy_layer if noisy else linear
        self.head = layer(width, math.prod(self.shape), config.init)

    def forward(self, obs: Tree) -> Tensor:
        if self.parts:
            return self.head(self.encoder(obs))
        numbers = self.head(self.encoder(obs)).unflatten(-1, self.shape)
        if not self.dueling:
            return numbers
        value, advantage = numbers[..., :1, :], numbers[..., 1:, :]
        return value + advantage - advantage.mean(-2, keepdim=True)


class QuantileFunction(nn.Module):
    """Quantiles at any fractions: `forward(obs, tau)` with tau [..., K], or [K] for all rows → [..., A, K]."""

    plain = True  # core.plain

    def __init__(
        self,
        obs_spec: Tree,
        actions: int | tuple[int, ...],
        cosines: int,
        config: ModelConfig,
        dueling: bool = False,
        noisy: bool = False,
    ):
        super().__init__()
        self.cosines, self.encoder = cosines, build_encoder(obs_spec, config)
        width = self.encoder.out_features
        self.embedding = linear(cosines, width, config.init)
        if not isinstance(actions, int):
            self.head: nn.Module = Parts(width, actions, config.init, dueling=dueling, noisy=noisy)
        elif dueling:
            self.head = Dueling(width, actions, config.init, noisy)
        else:
            self.head = (noisy_layer if noisy else linear)(width, actions, config.init)

    def features(self, obs: Tree) -> Tensor:
        """ψ(s) [..., F]."""
        return self.encoder(obs)

    def quantiles(self, features: Tensor, tau: Tensor) -> Tensor:
        """Z_τ(s, a) [..., A, K] of ψ(s) [..., F]; of several choices [..., choices, A, K]."""
        waves = torch.cos(math.pi * torch.arange(self.cosines, device=tau.device) * tau.unsqueeze(-1))  # [..., K, n]
        embedded = torch.relu(self.embedding(waves))
        numbers = self.head(features.unsqueeze(-2) * embedded)  # [..., K, A] or [..., K, choices, A]
        return numbers.movedim(-3, -1) if isinstance(self.head, Parts) else numbers.transpose(-1, -2)

    def forward(self, obs: Tree, tau: Tensor) -> Tensor:
        return self.quantiles(self.features(obs), tau)


class Fractions(nn.Module):
    """ψ(s) [..., F] → (log p [..., N], τ [..., N + 1] from 0 to 1, τ̂ [..., N])."""

    plain = True  # core.plain

    def __init__(self, in_features: int, count: int):
        super().__init__()
        self.propose = linear(in_features, count)
        nn.init.xavier_uniform_(self.propose.weight, gain=0.01)  # nearly equal fractions at first
        nn.init.zeros_(self.propose.bias)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_p = self.propose(features).log_softmax(-1)
        tau = log_p.exp().cumsum(-1)
        tau = torch.cat([torch.zeros_like(tau[..., :1]), tau], -1)
        return log_p, tau, 0.5 * (tau[..., 1:] + tau[..., :-1])
