"""What a learner cannot foresee yet: networks whose errors become small where it has been often.

Distillation   f(s') fixed and random, f̂(s') learns to equal it                        (Burda 2018)
Dynamics       φ(s) features, g(φ(s), φ(s')) tells the action, f(φ(s), a) tells φ(s')  (Pathak 2017)

Both carry a critic of the bonus and the running size of the bonus.
Observations are normalised by running statistics of their own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rookery.core.tree import Tree
from rookery.nets.build import build_encoder
from rookery.nets.config import ModelConfig
from rookery.nets.encoders import action_transform
from rookery.nets.modules import linear, mlp
from rookery.nets.normalise import Normalise
from rookery.nets.policy import Value, policy_head


class Features(nn.Module):
    """An embedding [..., size] of observations."""

    plain = True  # core.plain

    def __init__(self, obs_spec: Tree, model: ModelConfig, size: int):
        super().__init__()
        self.encoder = build_encoder(obs_spec, model)
        self.head = linear(self.encoder.out_features, size, model.init)

    def forward(self, obs: Tree) -> Tensor:
        return self.head(self.encoder(obs))


class Curious(nn.Module):
    """What both kinds have: V of the bonus, and the bonus's mean and variance so far."""

    plain = True  # core.plain

    def __init__(self, obs_spec: Tree, model: ModelConfig):
        super().__init__()
        self.value = Value(obs_spec, model)
        self.size = Normalise(())

    def scaled(self, bonus: Tensor) -> Tensor:
        """The bonus in units of its running root mean square."""
        return bonus / torch.sqrt(self.size.var + self.size.mean.square() + 1e-8)


class Distillation(Curious):
    """`forward(next_obs) → (f̂, f)`."""

    plain = True  # core.plain

    def __init__(self, obs_spec: Tree, model: ModelConfig, size: int):
        own = model.model_copy(update={"normalise_obs": True, "core": None})
        super().__init__(obs_spec, own)
        self.fixed = Features(obs_spec, own, size)
        self.learner = Features(obs_spec, own, size)

    def forward(self, next_obs: Tree) -> tuple[Tensor, Tensor]:
        return self.learner(next_obs), self.fixed(next_obs).detach()


class Dynamics(Curious):
    """`forward(obs, next_obs, action) → (parameters of a distribution of the action, f(φ, a), φ')`.

    Features learn from the action alone: what the actions do not influence is not seen, so it cannot surprise.
    """

    plain = True  # core.plain

    def __init__(self, obs_spec: Tree, action_spec: Tree, model: ModelConfig, size: int):
        own = model.model_copy(update={"normalise_obs": True, "core": None})
        super().__init__(obs_spec, own)
        self.coded, width = action_transform(action_spec)
        self.features = Features(obs_spec, own, size)
        self.between = mlp((2 * size, size), own.activation, activate_last=True)
        self.action = policy_head(size, action_spec)
        self.ahead = mlp((size + width, size, size), own.activation)

    def forward(self, obs: Tree, next_obs: Tree, action: Tree) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        now, then = self.features(obs), self.features(next_obs)
        action_params = self.action(self.between(torch.cat([now, then], -1)))
        foreseen = self.ahead(torch.cat([now.detach(), self.coded(action)], -1))
        return action_params, foreseen, then.detach()
