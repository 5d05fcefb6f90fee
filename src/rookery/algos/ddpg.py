"""Deep deterministic policy gradient (Lillicrap 2016).

    y      = R + γ^k (1 − terminated) Q'(s', μ'(s'))
    L_Q    = E[w ½ (Q(s, a) − y)²]
    L_μ    = −E[Q(s, μ(s))]                              the gradient of Q flows through the action into μ
    Q'     ← (1 − τ) Q' + τ Q
    μ'     ← (1 − τ) μ' + τ μ

Actions live in [−1, 1] here and are rescaled to the env's bounds by the rule. Acting adds noise to μ(s):
Gaussian, or the paper's Ornstein–Uhlenbeck noise, which drifts from step to step and begins at 0 in every
episode. The first `warmup` steps are uniform.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from rookery.acting.noise import GaussianNoise, OrnsteinUhlenbeck
from rookery.acting.rules import Rule
from rookery.algos.base import AlgoConfig, Algorithm, Positive, Share
from rookery.core.schedule import Schedule
from rookery.core.tree import Tree
from rookery.equations.value import squared, weighted_mean
from rookery.learning.optim import Adam, GradConfig, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import Critic, DeterministicPolicy


class DDPGConfig(AlgoConfig):
    """Options of DDPG."""

    name: Literal["ddpg"] = "ddpg"  # of the algorithm
    gamma: Share = 0.99  # discount per env step
    lr: Schedule = Schedule(start=1e-3)  # learning rate of the critic
    policy_lr: Schedule = Schedule(start=1e-4)  # learning rate of the policy
    n_step: Positive = 1  # rewards summed before the bootstrap
    tau: Annotated[float, Field(gt=0, le=1)] = 0.005  # how far the targets move per update
    noise_kind: Literal["gaussian", "ornstein_uhlenbeck"] = "gaussian"  # on actions: anew in each step, or drifting
    noise: Schedule = Schedule(start=0.1)  # σ of the noise, for actions that span [−1, 1]
    theta: Annotated[float, Field(gt=0, lt=2)] = 0.15  # how fast drifting noise returns to 0, per step
    warmup: Annotated[int, Field(ge=0)] = 1_000  # first env steps with uniform actions
    max_grad_norm: Annotated[float, Field(gt=0)] | None = None  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    rollout: Positive | None = None  # env steps per env and round; null: as many as an update waits for, 16 at most

    @model_validator(mode="after")
    def _theta_is_used(self) -> DDPGConfig:
        if self.noise_kind == "gaussian" and self.theta != type(self).model_fields["theta"].default:
            raise ValueError(
                f"algo.theta={self.theta:g} would be ignored: set algo.noise_kind=ornstein_uhlenbeck, or remove it"
            )
        return self


class DDPG(Algorithm):
    """Off-policy, continuous actions."""

    name = "ddpg"
    Config = DDPGConfig
    store_kind = "replay"
    actions = ("box",)
    plain = True
    targets = {"q_target": "q", "policy_target": "policy"}
    defaults = {"model": {"hidden": [256, 256], "activation": "relu"}, "store": {"batch_size": 256}}
    metrics = {
        "q/loss": "mean weighted loss of the TD errors",
        "policy/loss": "policy loss L_μ: minus the critic's value of the policy's actions",
        "q/grad_norm": "norm of the critic's gradient before clipping",
        "policy/grad_norm": "norm of the policy's gradient before clipping",
        "q_mean": "mean Q(s, a) of the sampled actions",
        "target_mean": "mean target y",
    }

    def networks(self) -> dict[str, nn.Module]:
        parts = self.obs_spec, self.action_spec, self.model
        return {"q": Critic(*parts), "policy": DeterministicPolicy(*parts)}

    def optimisers(self) -> dict[str, Optimiser]:
        limits = {"clip_norm": self.config.max_grad_norm, **self.config.grad.options}
        return {"q": Adam(**limits), "policy": Adam(lr="policy_lr", **limits)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        if self.config.noise_kind == "gaussian":
            return GaussianNoise(self.action_spec)
        return OrnsteinUhlenbeck(self.action_spec, self.config.theta)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return {"action": s.policy(obs)}, state

    def expected_return(self, s: Any, obs: Tree, state: Any) -> Tensor:
        return s.q(obs, s.policy(obs))

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, taken = self.config, b.action.reshape(len(b.reward), math.prod(self.action_spec.shape))
        y = b.reward + b.discount * s.q_target(b.next_obs, s.policy_target(b.next_obs))

        def loss(q: Any) -> tuple[Tensor, Tensor]:
            value = q(b.obs, taken)
            return weighted_mean(squared(value - y), b.weight), value

        value = s.minimise("q", loss)
        s.minimise("policy", lambda policy: -s.q(b.obs, policy(b.obs)).mean())
        s.follow("q_target", "q", c.tau)
        s.follow("policy_target", "policy", c.tau)
        return {"priority": (y - value).abs(), "q_mean": value.mean(), "target_mean": y.mean()}
