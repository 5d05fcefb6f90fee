"""Policy heads: the parameters of an action distribution, by the kind of action space.

discrete, multi-discrete   logits of every head, side by side
multi-binary               one logit per coin
box                        mean, and a log standard deviation that does not depend on the observation

and whole policies of bounded actions, vectors [..., d] in [−1, 1] whatever the shape of the space:

squashed                   mean and log standard deviation of u, the action is tanh u
deterministic              the action μ(s) itself
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from rookery.core.spec import Leaf
from rookery.core.tree import Tree, tree_take
from rookery.nets.build import build_encoder
from rookery.nets.config import ModelConfig
from rookery.nets.cores import Core, State, state_spec
from rookery.nets.modules import linear, orthogonal_


class PolicyHead(nn.Module):
    """features → {"logits"} or {"mean", "log_std"}."""

    plain = True  # core.plain

    def __init__(self, features: int, action_spec: Leaf, *, log_std: float = 0.0, orthogonal: bool = False):
        super().__init__()
        self.kind, self.sizes = action_spec.kind, action_spec.sizes
        width = {"box": math.prod(action_spec.shape), "multi_binary": math.prod(action_spec.shape)}
        self.linear = nn.Linear(features, width.get(self.kind, sum(self.sizes)))
        if orthogonal:
            orthogonal_(self.linear, gain=0.01)  # a nearly uniform policy at the start
        if self.kind == "box":
            self.log_std = nn.Parameter(torch.full((width["box"],), log_std, device="cpu"))

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        out = self.linear(features)
        if self.kind == "box":
            # a sum, not a view: a reader must not see the parameter change under its feet
            return {"mean": out, "log_std": self.log_std + torch.zeros_like(out)}
        return {"logits": out}


class Policy(nn.Module):
    """The parameters of an action distribution, without a value."""

    plain = True  # core.plain

    def __init__(self, obs_spec: Tree, action_spec: Leaf, model: ModelConfig, log_std: float = 0.0):
        super().__init__()
        self.encoder = build_encoder(obs_spec, model)
        orthogonal = model.init == "orthogonal"
        self.head = PolicyHead(self.encoder.out_features, action_spec, log_std=log_std, orthogonal=orthogonal)

    def forward(self, obs: Tree) -> dict[str, Tensor]:
        return self.head(self.encoder(obs))


class Value(nn.Module):
    """V(s) [...] by itself."""

    plain = True  # core.plain

    def __init__(self, obs_spec: Tree, model: ModelConfig):
        super().__init__()
        self.encoder = build_encoder(obs_spec, model)
        self.head = linear(self.encoder.out_features, 1, model.init)

    def forward(self, obs: Tree) -> Tensor:
        return self.head(self.encoder(obs)).squeeze(-1)


def memory_spec(model: ModelConfig, shared: bool) -> Tree:
    """What one seat of an `ActorCritic` remembers; None without memory."""
    names = ("policy",) if shared else ("policy", "value")
    return None if model.core is None else {name: state_spec(model.core) for name in names}


class ActorCritic(nn.Module):
    """Policy and value of an observation, with separate encoders or a shared one.

    With `model.core` each encoder is followed by a memory; the state is {"policy": …} if shared, else also has "value".
    """

    plain = True  # core.plain

    def __init__(
        self, obs_spec: Tree, action_spec: Leaf, model: ModelConfig, *, shared: bool = False, log_std: float = 0.0
    ):
        super().__init__()
        orthogonal = model.init == "orthogonal"
        self.shared = shared
        self.encoder = build_encoder(obs_spec, model)
        self.critic = None if shared else build_encoder(obs_spec, model)
        width = self.encoder.out_features
        self.cores = nn.ModuleDict()
        if model.core is not None:
            width = model.core.size
            names = ("policy",) if shared else ("policy", "value")
            self.cores.update({name: Core(self.encoder.out_features, model.core) for name in names})
        self.head = PolicyHead(width, action_spec, log_std=log_std, orthogonal=orthogonal)
        self.value_head = nn.Linear(width, 1)
        if orthogonal:
            orthogonal_(self.value_head, gain=1.0)

    def forward(self, obs: Tree) -> tuple[dict[str, Tensor], Tensor]:
        features = self.encoder(obs)
        judged = features if self.critic is None else self.critic(obs)
        return self.head(features), self.value_head(judged).squeeze(-1)

    def policy(self, obs: Tree) -> dict[str, Tensor]:
        return self.head(self.encoder(obs))

    def act(self, obs: Tree, state: Any) -> tuple[dict[str, Tensor], Any]:
        """(policy, next state); the state is None without memory."""
        if state is None:
            return self.policy(obs), None
        params, _, state = self.step(obs, state)
        return params, state

    def read(self, b: Any) -> tuple[dict[str, Tensor], Tensor]:
        """Policy and value of rows [N], or with a memory of sequences [L, N] from their state [1, N]."""
        return self.unroll(b.obs, tree_take(b.state, 0), b.first, b.valid)[:2] if self.cores else self(b.obs)

    def judge(self, b: Any) -> tuple[Tensor, Tensor, Tensor]:
        """V of a rollout's rows [T, B], of `last_obs` [B] and of `final_obs` [K],
        these with the memory after the step.
        """
        if not self.cores:
            return self.value(b.obs), self.value(b.last_obs), self.value(b.final_obs)
        _, value, after = self.unroll(b.obs, tree_take(b.state, 0), b.first, b.valid)
        last = self.step(b.last_obs, tree_take(after, -1))[1]
        return value, last, self.step(b.final_obs, tree_take(after, tuple(b.final_at.unbind(1))))[1]

    def decide(self, b: Any) -> dict[str, Tensor]:
        """The policy of a rollout's rows [T, B]."""
        return self.unroll(b.obs, tree_take(b.state, 0), b.first, b.valid)[0] if self.cores else self.policy(b.obs)

    def value(self, obs: Tree) -> Tensor:
        encoder = self.encoder if self.critic is None else self.critic
        return self.value_head(encoder(obs)).squeeze(-1)

    def step(self, obs: Tree, state: dict[str, State]) -> tuple[dict[str, Tensor], Tensor, dict[str, State]]:
        """(policy, value, next state) with any leading dimensions."""
        out = {name: core.step(x, state[name]) for name, core, x in self._parts(obs)}
        return self._heads({name: y for name, (y, _) in out.items()}, {name: s for name, (_, s) in out.items()})

    def unroll(
        self, obs: Tree, state: dict[str, State], first: Tensor, valid: Tensor
    ) -> tuple[dict[str, Tensor], Tensor, dict[str, State]]:
        """(policy [T, B, …], value [T, B], states after each step [T, B, …]) from the state [B, …] before the first."""
        out = {name: core.unroll(x, state[name], first, valid) for name, core, x in self._parts(obs)}
        return self._heads({name: y for name, (y, _) in out.items()}, {name: s for name, (_, s) in out.items()})

    def _parts(self, obs: Tree) -> list[tuple[str, Any, Tensor]]:
        encoders = {"policy": self.encoder, "value": self.critic}
        return [(name, core, encoders[name](obs)) for name, core in self.cores.items()]  # type: ignore[misc]

    def _heads(self, features: dict[str, Tensor], state: dict[str, State]) -> tuple[dict[str, Tensor], Tensor, Any]:
        judged = features.get("value", features["policy"])
        return self.head(features["policy"]), self.value_head(judged).squeeze(-1), state


class SquashedPolicy(nn.Module):
    """(mean, log standard deviation within `bounds`) of a Gaussian under a tanh, both [..., d]."""

    plain = True  # core.plain

    def __init__(self, obs_spec: Tree, action_spec: Leaf, model: ModelConfig, bounds: tuple[float, float]):
        super().__init__()
        self.bounds = bounds
        self.encoder = build_encoder(obs_spec, model)
        self.head = nn.Linear(self.encoder.out_features, 2 * math.prod(action_spec.shape))

    def forward(self, obs: Tree) -> tuple[Tensor, Tensor]:
        mean, log_std = self.head(self.encoder(obs)).chunk(2, -1)
        return mean, log_std.clamp(*self.bounds)


class DeterministicPolicy(nn.Module):
    """μ(s) in [−1, 1], [..., d]."""

    plain = True  # core.plain

    def __init__(self, obs_spec: Tree, action_spec: Leaf, model: ModelConfig):
        super().__init__()
        self.encoder = build_encoder(obs_spec, model)
        self.head = nn.Linear(self.encoder.out_features, math.prod(action_spec.shape))
        # small, so that tanh is far from its flat ends at the start (Lillicrap 2016, section 7)
        nn.init.uniform_(self.head.weight, -3e-3, 3e-3)
        nn.init.uniform_(self.head.bias, -3e-3, 3e-3)

    def forward(self, obs: Tree) -> Tensor:
        return torch.tanh(self.head(self.encoder(obs)))
