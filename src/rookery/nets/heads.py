"""Networks for the usual algorithms: an encoder with single linear layers on top.

dueling  Q(s, a) = V(s) + A(s, a) − mean_a' A(s, a')          (Wang 2016, eq. 9)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor, nn

from rookery.core.spec import Leaf, without_mask
from rookery.core.tree import Tree
from rookery.nets.build import build_encoder
from rookery.nets.config import Init, ModelConfig
from rookery.nets.cores import Core, State, Stepwise, build_core
from rookery.nets.modules import linear
from rookery.nets.noisy import noisy as noisy_layer
from rookery.nets.normalise import normaliser_of, observation_of


def _last(in_features: int, out_features: int, init: Init, noisy: bool) -> nn.Module:
    return noisy_layer(in_features, out_features, init) if noisy else linear(in_features, out_features, init)


class Dueling(nn.Module):
    """Features → [..., A]. One layer gives V in the first column and the advantages in the others."""

    plain = True  # core.plain

    def __init__(self, in_features: int, actions: int, init: Init = "default", noisy: bool = False):
        super().__init__()
        self.both = _last(in_features, 1 + actions, init, noisy)

    def forward(self, x: Tensor) -> Tensor:
        both = self.both(x)
        value, advantage = both[..., :1], both[..., 1:]
        return value + advantage - advantage.mean(-1, keepdim=True)


class Parts(nn.Module):
    """Features → [..., K, A]: a head for each of K choices, side by side in one layer; numbers [..., K, A, N] with
    `count`. A choice of fewer than A actions is filled up with what nobody reads.
    """

    plain = True  # core.plain

    def __init__(
        self,
        in_features: int,
        sizes: tuple[int, ...],
        init: Init = "default",
        *,
        dueling: bool = False,
        noisy: bool = False,
        count: int | None = None,
    ):
        super().__init__()
        self.sizes, self.dueling = sizes, dueling
        self.shape = (len(sizes), max(sizes) + dueling, *([] if count is None else [count]))
        self.axis = -1 if count is None else -2  # of the actions
        self.all = _last(in_features, math.prod(self.shape), init, noisy)

    def forward(self, x: Tensor) -> Tensor:
        numbers = self.all(x).unflatten(-1, self.shape)
        if not self.dueling:
            return numbers
        value, advantage = numbers.narrow(self.axis, 0, 1), numbers.narrow(self.axis, 1, self.shape[1] - 1)
        return value + advantage - self._mean(advantage)

    def _mean(self, advantage: Tensor) -> Tensor:
        """Over the real actions of each choice: [..., K, 1] or [..., K, 1, N]."""
        axis = self.axis
        if len(set(self.sizes)) == 1:
            return advantage.mean(axis, keepdim=True)
        real = [advantage.narrow(axis - 1, k, 1).narrow(axis, 0, n) for k, n in enumerate(self.sizes)]
        return torch.cat([part.mean(axis, keepdim=True) for part in real], axis - 1)


class QNetwork(nn.Module):
    """Q of every action, [..., A], or [..., K, A] of K choices, whose sizes `actions` then lists.

    Action masks are not its business, but that of rules and losses.

    With `model.core` it has a memory and is read by `step` and `unroll`, else by calling it.
    """

    plain = True  # core.plain

    def __init__(
        self,
        obs_spec: Tree,
        actions: int | tuple[int, ...],
        config: ModelConfig,
        dueling: bool = False,
        noisy: bool = False,
    ):
        super().__init__()
        self.encoder = build_encoder(obs_spec, config)
        self.core = None if config.core is None else build_core(self.encoder.out_features, config.core)
        width = self.encoder.out_features if self.core is None else self.core.size
        if isinstance(actions, int):
            self.head = (Dueling if dueling else _last)(width, actions, config.init, noisy)
        else:
            self.head = Parts(width, actions, config.init, dueling=dueling, noisy=noisy)

    def forward(self, obs: Tree) -> Tensor:
        return self.head(self.encoder(obs))

    def plain_layers(self) -> list[nn.Module] | None:
        """All layers in a row, if a batch of flat observations goes through them and nothing else;
        see `learning.short_path`.
        """
        tells = getattr(self.encoder, "plain_layers", None)
        layers = None if tells is None or self.core is not None else tells()
        return None if layers is None else [*layers, self.head]

    def step(self, obs: Tree, state: State) -> tuple[Tensor, State]:
        """(Q [..., A], next state) with any leading dimensions."""
        features, state = _core(self.core).step(self.encoder(obs), state)
        return self.head(features), state

    def unroll(self, obs: Tree, state: State, first: Tensor, valid: Tensor) -> tuple[Tensor, State]:
        """(Q [T, B, A], states after each step [T, B, …]) from the state [B, …] before the first."""
        features, states = _core(self.core).unroll(self.encoder(obs), state, first, valid)
        return self.head(features), states


def _core(core: Core | Stepwise | None) -> Core | Stepwise:
    assert core is not None, "this network was built without model.core"
    return core


class Critic(nn.Module):
    """Q(s, a) [...] of continuous actions [..., d], which enter together with the observation; only that is normalised.

    With `quantiles` it gives so many numbers of the distribution of returns, [..., quantiles].
    """

    plain = True  # core.plain

    def __init__(self, obs_spec: Tree, action_spec: Leaf, config: ModelConfig, quantiles: int | None = None):
        super().__init__()
        action = Leaf("box", (math.prod(action_spec.shape),), action_spec.dtype)
        seen = without_mask(obs_spec)
        self.quantiles = quantiles
        self.normaliser = normaliser_of(seen) if config.normalise_obs else None
        self.encoder = build_encoder(
            {"obs": seen, "action": action}, config.model_copy(update={"normalise_obs": False})
        )
        self.head = linear(self.encoder.out_features, quantiles or 1, config.init)

    def forward(self, obs: Tree, action: Tensor) -> Tensor:
        obs = observation_of(obs)
        if self.normaliser is not None:
            obs = self.normaliser(obs)
        out = self.head(self.encoder({"obs": obs, "action": action}))
        return out if self.quantiles else out.squeeze(-1)


class Ensemble(nn.Module):
    """Several networks of one kind, each with weights of its own: their results side by side, [count, ...].

    A loop, not stacked weights: those are faster only where networks are tiny and updates are not compiled,
    and so a member may be any network.
    """

    plain = True  # core.plain

    def __init__(self, make: Callable[[], nn.Module], count: int):
        super().__init__()
        self.members = nn.ModuleList(make() for _ in range(count))

    def forward(self, *inputs: Tree) -> Tensor:
        return torch.stack([member(*inputs) for member in self.members])

    def least(self, *inputs: Tree) -> Tensor:
        """The smallest of their results, element by element."""
        return reduce(torch.minimum, [member(*inputs) for member in self.members])
