"""Soft actor-critic (Haarnoja 2018) with twin critics and a learned temperature.

    y      = R + γ^k (1 − terminated) (min_j Q'_j(s', a') − α log π(a'|s')),     a' ~ π(·|s')
    L_Q    = Σ_j E[w ½ (Q_j(s, a) − y)²]
    L_π    = E[α log π(a|s) − min_j Q_j(s, a)],     a = tanh(μ(s) + σ(s) ε)      reparameterised
    L_α    = −log α · E[log π(a|s) + H̄],            H̄ = −dim(a) unless given
    Q'     ← (1 − τ) Q' + τ Q

Actions live in [−1, 1] here and are rescaled to the env's bounds by the rule. The first `warmup` steps are uniform.
With `noise_memory` the noise of acting drifts from step to step, for tasks where pushing to and fro leads nowhere.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from rookery.acting.noise import squashed
from rookery.acting.rules import Rule
from rookery.algos.base import AlgoConfig, Algorithm, Positive, Share
from rookery.core.schedule import Schedule
from rookery.core.tree import Tree
from rookery.equations.soft import squashed_sample, temperature_loss
from rookery.equations.value import squared, weighted_mean
from rookery.learning.optim import Adam, GradConfig, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import Critic, Ensemble, Scalar, SquashedPolicy


class SoftConfig(AlgoConfig):
    """Options of SAC and of the algorithms that learn its policy with other critics."""

    gamma: Share = 0.99  # discount per env step
    lr: Schedule = Schedule(start=3e-4)  # learning rate of critics and policy
    alpha_lr: Schedule = Schedule(start=3e-4)  # learning rate of log α
    n_step: Positive = 1  # rewards summed before the bootstrap
    alpha: Annotated[float, Field(gt=0)] = 1.0  # initial temperature (the temperature itself if `tune_alpha` is false)
    tune_alpha: bool = True  # learn α so that the entropy approaches `target_entropy`
    target_entropy: float | None = None  # H̄ in nats; None: −dim(action)
    warmup: Annotated[int, Field(ge=0)] = 1_000  # first env steps with uniform actions
    noise_memory: Annotated[float, Field(ge=0, lt=1)] = 0.0  # ρ: correlation of the noise on actions from step to step
    log_std_min: float = -5.0  # bounds of the policy's log standard deviation
    log_std_max: float = 2.0  # upper bound of it
    max_grad_norm: Annotated[float, Field(gt=0)] | None = None  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    rollout: Positive | None = None  # env steps per env and round; null: as many as an update waits for, 16 at most

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.log_std_min >= self.log_std_max:
            raise ValueError(f"algo.log_std_min={self.log_std_min} must be below algo.log_std_max={self.log_std_max}")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """Of the policy's log standard deviation."""
        return self.log_std_min, self.log_std_max


class SACConfig(SoftConfig):
    """Options of SAC."""

    name: Literal["sac"] = "sac"  # of the algorithm
    tau: Annotated[float, Field(gt=0, le=1)] = 0.005  # how far the target critics move per update


class SAC(Algorithm):
    """Off-policy, continuous actions."""

    name = "sac"
    Config = SACConfig
    store_kind = "replay"
    actions = ("box",)
    plain = True
    targets = {"q_target": "q"}
    schedule = {"update": 1}
    defaults = {"model": {"hidden": [256, 256], "activation": "relu"}, "store": {"batch_size": 256}}
    metrics = {
        "q/loss": "sum of both critics' losses",
        "policy/loss": "policy loss L_π",
        "log_alpha/loss": "temperature loss L_α",
        "q/grad_norm": "norm of the critics' gradient before clipping",
        "policy/grad_norm": "norm of the policy's gradient before clipping",
        "log_alpha/grad_norm": "absolute gradient of log α",
        "alpha": "temperature α",
        "entropy": "estimate −E[log π(a|s)] of the policy's entropy, in nats",
        "q_mean": "mean of the first critic on sampled actions",
        "target_mean": "mean target y",
    }

    def __init__(self, config: SACConfig, obs_spec: Tree, action_spec: Tree, model: Any):
        super().__init__(config, obs_spec, action_spec, model)
        self.width = math.prod(action_spec.shape)
        self.entropy = -float(self.width) if config.target_entropy is None else config.target_entropy

    def networks(self) -> dict[str, nn.Module]:
        c, parts = self.config, (self.obs_spec, self.action_spec, self.model)
        policy, critics = SquashedPolicy(*parts, c.bounds), Ensemble(lambda: Critic(*parts), 2)
        return {"q": critics, "policy": policy, "log_alpha": Scalar(math.log(c.alpha))}

    def optimisers(self) -> dict[str, Optimiser]:
        limited = Adam(clip_norm=self.config.max_grad_norm, **self.config.grad.options)
        learning: dict[str, Optimiser] = {"q": limited, "policy": limited}
        return learning | ({"log_alpha": Adam(lr="alpha_lr", fixed=True)} if self.config.tune_alpha else {})

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return squashed(self.action_spec, self.config.noise_memory)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        mean, log_std = s.policy(obs)
        return {"mean": mean, "log_std": log_std}, state

    def expected_return(self, s: Any, obs: Tree, state: Any) -> Tensor:
        return s.q.least(obs, s.policy(obs)[0].tanh())

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        rows = len(b.reward)
        taken, alpha = b.action.reshape(rows, self.width), s.log_alpha().exp()
        next_action, next_logp = squashed_sample(s.policy(b.next_obs), s.normal(rows, self.width))
        y = b.reward + b.discount * (s.q_target.least(b.next_obs, next_action) - alpha * next_logp)
        eps = s.normal(rows, self.width)

        def q_loss(q: Any) -> tuple[Tensor, Tensor]:
            values = q(b.obs, taken)  # [2, B]
            return weighted_mean(squared(values - y).sum(0), b.weight), values[0]

        def policy_loss(policy: Any) -> tuple[Tensor, Tensor]:
            action, logp = squashed_sample(policy(b.obs), eps)
            return (alpha * logp - s.q.least(b.obs, action)).mean(), logp

        first = s.minimise("q", q_loss)
        logp = s.minimise("policy", policy_loss)
        if self.config.tune_alpha:
            s.minimise("log_alpha", lambda log_alpha: temperature_loss(log_alpha(), logp, self.entropy))
        s.follow("q_target", "q", self.config.tau)
        numbers = {"alpha": alpha, "entropy": -logp.mean(), "q_mean": first.mean(), "target_mean": y.mean()}
        return numbers | {"priority": (y - first).abs()}
