"""Twin delayed deep deterministic policy gradient (Fujimoto 2018).

    a'     = clip(μ'(s') + clip(σ' ε, ±c), ±1)                   target policy smoothing: near actions have near values
    y      = R + γ^k (1 − terminated) min_j Q'_j(s', a')         the smaller of two critics does not overestimate
    L_Q    = Σ_j E[w ½ (Q_j(s, a) − y)²]
    L_μ    = −E[Q_1(s, μ(s))]                                    every `policy_every` updates, with both lines below
    Q'     ← (1 − τ) Q' + τ Q
    μ'     ← (1 − τ) μ' + τ μ

Actions live in [−1, 1] here and are rescaled to the env's bounds by the rule.
Acting adds Gaussian noise to μ(s); the first `warmup` steps are uniform.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

from rookery.acting.noise import GaussianNoise
from rookery.acting.rules import Rule
from rookery.algos.base import AlgoConfig, Algorithm, Positive, Share
from rookery.core.schedule import Schedule
from rookery.core.tree import Tree
from rookery.equations.value import squared, weighted_mean
from rookery.learning.optim import Adam, GradConfig, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import Critic, DeterministicPolicy, Ensemble


class TD3Config(AlgoConfig):
    """Options of TD3."""

    name: Literal["td3"] = "td3"  # of the algorithm
    gamma: Share = 0.99  # discount per env step
    lr: Schedule = Schedule(start=1e-3)  # learning rate of the critics
    policy_lr: Schedule = Schedule(start=1e-3)  # learning rate of the policy
    n_step: Positive = 1  # rewards summed before the bootstrap
    tau: Annotated[float, Field(gt=0, le=1)] = 0.005  # how far the targets move, each time the policy learns
    policy_every: Positive = 2  # updates of the critics per update of the policy and the targets
    smoothing: Annotated[float, Field(ge=0)] = 0.2  # σ': deviation of the noise on target actions, which span [−1, 1]
    smoothing_clip: Annotated[float, Field(gt=0)] = 0.5  # c: most that this noise may be
    noise: Schedule = Schedule(start=0.1)  # deviation of the noise on actions taken, which span [−1, 1]
    warmup: Annotated[int, Field(ge=0)] = 1_000  # first env steps with uniform actions
    max_grad_norm: Annotated[float, Field(gt=0)] | None = None  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    rollout: Positive | None = None  # env steps per env and round; null: as many as an update waits for, 16 at most


class TD3(Algorithm):
    """Off-policy, continuous actions."""

    name = "td3"
    Config = TD3Config
    store_kind = "replay"
    actions = ("box",)
    plain = True
    targets = {"q_target": "q", "policy_target": "policy"}
    defaults = {"model": {"hidden": [256, 256], "activation": "relu"}, "store": {"batch_size": 256}}
    metrics = {
        "q/loss": "sum of both critics' losses",
        "policy/loss": "policy loss L_μ: minus the first critic's value of the policy's actions",
        "q/grad_norm": "norm of the critics' gradient before clipping",
        "policy/grad_norm": "norm of the policy's gradient before clipping",
        "q_mean": "mean of the first critic on sampled actions",
        "target_mean": "mean target y",
    }

    def __init__(self, config: TD3Config, obs_spec: Tree, action_spec: Tree, model: Any):
        super().__init__(config, obs_spec, action_spec, model)
        self.width = math.prod(action_spec.shape)
        self.schedule = {"update": 1, "update_policy": config.policy_every}

    def networks(self) -> dict[str, nn.Module]:
        parts = self.obs_spec, self.action_spec, self.model
        return {"q": Ensemble(lambda: Critic(*parts), 2), "policy": DeterministicPolicy(*parts)}

    def optimisers(self) -> dict[str, Optimiser]:
        limits = {"clip_norm": self.config.max_grad_norm, **self.config.grad.options}
        return {"q": Adam(**limits), "policy": Adam(lr="policy_lr", **limits)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return GaussianNoise(self.action_spec)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return {"action": s.policy(obs)}, state

    def expected_return(self, s: Any, obs: Tree, state: Any) -> Tensor:
        return s.q.least(obs, s.policy(obs))

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, rows = self.config, len(b.reward)
        taken = b.action.reshape(rows, self.width)
        noise = (c.smoothing * s.normal(rows, self.width)).clamp(-c.smoothing_clip, c.smoothing_clip)
        next_action = (s.policy_target(b.next_obs) + noise).clamp(-1.0, 1.0)
        y = b.reward + b.discount * s.q_target.least(b.next_obs, next_action)

        def loss(q: Any) -> tuple[Tensor, Tensor]:
            values = q(b.obs, taken)  # [2, B]
            return weighted_mean(squared(values - y).sum(0), b.weight), values[0]

        first = s.minimise("q", loss)
        return {"priority": (y - first).abs(), "q_mean": first.mean(), "target_mean": y.mean()}

    def update_policy(self, s: UpdateState, b: UpdateBatch) -> None:
        s.minimise("policy", lambda policy: -s.q.members[0](b.obs, policy(b.obs)).mean())
        s.follow("q_target", "q", self.config.tau)
        s.follow("policy_target", "policy", self.config.tau)
