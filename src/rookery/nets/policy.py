"""Policy heads: the parameters of an action distribution, by the kind of action space.

discrete, multi-discrete   logits of every head, side by side
multi-binary               one logit per coin
box                        mean, and a log standard deviation that does not depend on the observation; or one that does,
                           σ_i(s)² = Σ_j z_j(s)² s_ji², of noise z(s)ᵀ θ, θ_ji ~ N(0, s_ji²)    (gSDE, Raffin 2021)
Dict, Tuple                a head for each part, whose path stands before the names of its parameters: `arm/mean`

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
from rookery.core.team import WORLD
from rookery.core.tree import Tree, leaves, tree_take, walk
from rookery.nets.build import build_encoder
from rookery.nets.config import ModelConfig
from rookery.nets.cores import State, build_core, state_spec
from rookery.nets.modules import linear, orthogonal_
from rookery.nets.normalise import Scale


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


class StateDependentHead(nn.Module):
    """features z → {"mean", "log_std"} of a box, whose deviation depends on z; it learns no features from that."""

    plain = True  # core.plain

    def __init__(self, features: int, action_spec: Leaf, *, log_std: float = 0.0, orthogonal: bool = False):
        super().__init__()
        width = math.prod(action_spec.shape)
        self.linear = nn.Linear(features, width)
        if orthogonal:
            orthogonal_(self.linear, gain=0.01)  # as in PolicyHead
        # features of size 1 give the deviation exp(log_std), however many they are
        self.log_scale = nn.Parameter(torch.full((features, width), log_std - 0.5 * math.log(features), device="cpu"))

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        z = features.detach()
        variance = (z * z) @ torch.exp(2.0 * self.log_scale)
        return {"mean": self.linear(features), "log_std": 0.5 * torch.log(variance + 1e-6)}

    def acting(self, features: Tensor) -> dict[str, Tensor]:
        """With what a rule needs to draw such noise: z [..., features] and s [features, d]."""
        return self(features) | {"latent": features + 0.0, "scale": torch.exp(self.log_scale)}


class PolicyHeads(nn.Module):
    """A head for each part of a Dict or Tuple of actions."""

    plain = True  # core.plain

    def __init__(self, features: int, action_spec: Tree, *, log_std: float = 0.0, orthogonal: bool = False):
        super().__init__()
        self.paths = tuple(path for path, _ in walk(action_spec))
        self.heads = nn.ModuleList(
            PolicyHead(features, leaf, log_std=log_std, orthogonal=orthogonal) for leaf in leaves(action_spec)
        )

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        parts = zip(self.paths, self.heads)
        return {f"{path}/{name}": x for path, head in parts for name, x in head(features).items()}


def policy_head(
    features: int, action_spec: Tree, *, log_std: float = 0.0, orthogonal: bool = False, state_dependent: bool = False
) -> nn.Module:
    """features → the parameters of a distribution over the action space."""
    alone: type[nn.Module] = StateDependentHead if state_dependent else PolicyHead
    kind = alone if isinstance(action_spec, Leaf) else PolicyHeads
    return kind(features, action_spec, log_std=log_std, orthogonal=orthogonal)


class Policy(nn.Module):
    """The parameters of an action distribution, without a value."""

    plain = True  # core.plain

    def __init__(self, obs_spec: Tree, action_spec: Tree, model: ModelConfig, log_std: float = 0.0):
        super().__init__()
        self.encoder = build_encoder(obs_spec, model)
        orthogonal = model.init == "orthogonal"
        self.head = policy_head(self.encoder.out_features, action_spec, log_std=log_std, orthogonal=orthogonal)

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
    `central`: the critic alone sees the part `world` of an observation. `scaled`: calling, `read` and `unroll` give the
    value in deviations from the mean return (`scale`), `value`, `judge` and `step` as a return.
    """

    plain = True  # core.plain

    def __init__(
        self,
        obs_spec: Tree,
        action_spec: Tree,
        model: ModelConfig,
        *,
        shared: bool = False,
        log_std: float = 0.0,
        state_dependent: bool = False,
        central: bool = False,
        scaled: bool = False,
    ):
        super().__init__()
        orthogonal = model.init == "orthogonal"
        self.shared, self.central = shared, central
        self.encoder = build_encoder(self._own(obs_spec), model)
        self.critic = None if shared else build_encoder(obs_spec, model)
        width = self.encoder.out_features
        self.cores = nn.ModuleDict()
        if model.core is not None:
            names = ("policy",) if shared else ("policy", "value")
            cores = {name: build_core(width, model.core) for name in names}
            self.cores.update(cores)
            width = cores["policy"].size
        options = {"orthogonal": orthogonal, "state_dependent": state_dependent}
        self.head = policy_head(width, action_spec, log_std=log_std, **options)
        self.value_head = nn.Linear(width, 1)
        if orthogonal:
            orthogonal_(self.value_head, gain=1.0)
        self.scale = Scale() if scaled else None

    def _own(self, obs: Tree) -> Tree:
        """What the policy sees."""
        return {key: part for key, part in obs.items() if key != WORLD} if self.central else obs

    def sees(self, obs: Tree) -> list[tuple[nn.Module, Tree]]:
        """Which part sees what, for normalisers."""
        return [(self.encoder, self._own(obs)), *([] if self.critic is None else [(self.critic, obs)])]

    def forward(self, obs: Tree) -> tuple[dict[str, Tensor], Tensor]:
        features = self.encoder(self._own(obs))
        judged = features if self.critic is None else self.critic(obs)
        return self.head(features), self.value_head(judged).squeeze(-1)

    def policy(self, obs: Tree) -> dict[str, Tensor]:
        return self.head(self.encoder(self._own(obs)))

    def act(self, obs: Tree, state: Any) -> tuple[dict[str, Tensor], Any]:
        """(policy, next state); the state is None without memory."""
        if state is None:
            return self._acting(self.encoder(self._own(obs))), None
        params, _, state = self.step(obs, state)
        return params, state

    def _acting(self, features: Tensor) -> dict[str, Tensor]:
        return self.head.acting(features) if isinstance(self.head, StateDependentHead) else self.head(features)

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
        return self._return(value), last, self.step(b.final_obs, tree_take(after, tuple(b.final_at.unbind(1))))[1]

    def decide(self, b: Any) -> dict[str, Tensor]:
        """The policy of a rollout's rows [T, B]."""
        return self.unroll(b.obs, tree_take(b.state, 0), b.first, b.valid)[0] if self.cores else self.policy(b.obs)

    def value(self, obs: Tree) -> Tensor:
        encoder = self.encoder if self.critic is None else self.critic
        return self._return(self.value_head(encoder(obs)).squeeze(-1))

    def _return(self, value: Tensor) -> Tensor:
        return value if self.scale is None else self.scale.back(value)

    def step(self, obs: Tree, state: dict[str, State]) -> tuple[dict[str, Tensor], Tensor, dict[str, State]]:
        """(policy, value, next state) with any leading dimensions."""
        out = {name: core.step(x, state[name]) for name, core, x in self._parts(obs)}
        features = {name: y for name, (y, _) in out.items()}
        value = self._return(self._judged(features))
        return self._acting(features["policy"]), value, {name: s for name, (_, s) in out.items()}

    def unroll(
        self, obs: Tree, state: dict[str, State], first: Tensor, valid: Tensor
    ) -> tuple[dict[str, Tensor], Tensor, dict[str, State]]:
        """(policy [T, B, …], value [T, B], states after each step [T, B, …]) from the state [B, …] before the first."""
        out = {name: core.unroll(x, state[name], first, valid) for name, core, x in self._parts(obs)}
        features = {name: y for name, (y, _) in out.items()}
        return self.head(features["policy"]), self._judged(features), {name: s for name, (_, s) in out.items()}

    def _parts(self, obs: Tree) -> list[tuple[str, Any, Tensor]]:
        encoders = {"policy": (self.encoder, self._own(obs)), "value": (self.critic, obs)}
        pairs = ((name, core, *encoders[name]) for name, core in self.cores.items())
        return [(name, core, encoder(seen)) for name, core, encoder, seen in pairs]  # type: ignore[misc]

    def _judged(self, features: dict[str, Tensor]) -> Tensor:
        return self.value_head(features.get("value", features["policy"])).squeeze(-1)


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
