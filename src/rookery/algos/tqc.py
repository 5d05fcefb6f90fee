"""Truncated quantile critics (Kuznetsov 2020):
SAC whose critics learn distributions, and whose targets leave out the largest values.

    Z_n(s, a)  = {θ_n¹, …, θ_n^M}                                      M quantiles of the return, from each of N critics
    z_(1) ≤ …  = all N M quantiles of Z'(s', a') sorted, without the N d largest,      a' ~ π(·|s')
    y_i        = R + γ^k (1 − terminated) (z_(i) − α log π(a'|s'))
    L_Z        = Σ_n E[w mean_m mean_i |τ_m − 1{y_i < θ_n^m}| huber(y_i − θ_n^m)],     τ_m = (2 m − 1) / 2 M
    L_π        = E[α log π(a|s) − mean_{n,m} θ_n^m(s, a)]
    L_α        = −log α · E[log π(a|s) + H̄],                                   H̄ = −dim(a) unless given
    Z'         ← (1 − τ) Z' + τ Z

Actions live in [−1, 1] here and are rescaled to the env's bounds by the rule. The first `warmup` steps are uniform.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from rookery.acting.noise import squashed
from rookery.acting.rules import Rule
from rookery.algos.base import Algorithm, Positive
from rookery.algos.sac import SoftConfig
from rookery.core.tree import Tree
from rookery.equations.distributional import midpoints, quantile_huber
from rookery.equations.soft import squashed_sample, temperature_loss, without_largest
from rookery.equations.value import weighted_mean
from rookery.learning.optim import Adam, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import Critic, Ensemble, Scalar, SquashedPolicy


class TQCConfig(SoftConfig):
    """Options of TQC."""

    name: Literal["tqc"] = "tqc"  # of the algorithm
    tau: Annotated[float, Field(gt=0, le=1)] = 0.005  # how far the target critics move per update
    critics: Annotated[int, Field(ge=1, le=1_000)] = 5  # N
    quantiles: Positive = 25  # M: numbers that each critic gives
    drop: Annotated[int, Field(ge=0)] = 2  # d: quantiles per critic left out of targets, the largest of all

    @model_validator(mode="after")
    def _some_are_left(self) -> Self:
        if self.drop >= self.quantiles:
            raise ValueError(f"algo.drop={self.drop} must be smaller than algo.quantiles={self.quantiles}")
        return self


class TQC(Algorithm):
    """Off-policy, continuous actions."""

    name = "tqc"
    Config = TQCConfig
    store_kind = "replay"
    actions = ("box",)
    plain = True
    targets = {"q_target": "q"}
    defaults = {"model": {"hidden": [256, 256], "activation": "relu"}, "store": {"batch_size": 256}}
    metrics = {
        "q/loss": "sum of all critics' quantile losses",
        "policy/loss": "policy loss L_π",
        "log_alpha/loss": "temperature loss L_α",
        "q/grad_norm": "norm of the critics' gradient before clipping",
        "policy/grad_norm": "norm of the policy's gradient before clipping",
        "log_alpha/grad_norm": "absolute gradient of log α",
        "alpha": "temperature α",
        "entropy": "estimate −E[log π(a|s)] of the policy's entropy, in nats",
        "q_mean": "mean of all quantiles on sampled actions",
        "target_mean": "mean target y",
    }

    def __init__(self, config: TQCConfig, obs_spec: Tree, action_spec: Tree, model: Any):
        super().__init__(config, obs_spec, action_spec, model)
        self.width = math.prod(action_spec.shape)
        self.entropy = -float(self.width) if config.target_entropy is None else config.target_entropy

    def networks(self) -> dict[str, nn.Module]:
        c, parts = self.config, (self.obs_spec, self.action_spec, self.model)
        critics = Ensemble(lambda: Critic(*parts, quantiles=c.quantiles), c.critics)
        return {"q": critics, "policy": SquashedPolicy(*parts, c.bounds), "log_alpha": Scalar(math.log(c.alpha))}

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
        return s.q(obs, s.policy(obs)[0].tanh()).mean((0, -1))

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, rows = self.config, len(b.reward)
        taken, alpha = b.action.reshape(rows, self.width), s.log_alpha().exp()
        next_action, next_logp = squashed_sample(s.policy(b.next_obs), s.normal(rows, self.width))
        kept = without_largest(s.q_target(b.next_obs, next_action), c.drop)  # [B, N (M − d)]
        y = b.reward.unsqueeze(-1) + b.discount.unsqueeze(-1) * (kept - (alpha * next_logp).unsqueeze(-1))
        tau, eps = midpoints(c.quantiles, b.reward.device), s.normal(rows, self.width)

        def q_loss(q: Any) -> tuple[Tensor, Tensor]:
            quantiles = q(b.obs, taken)  # [N, B, M]
            per_sample = quantile_huber(quantiles, y, tau).sum(0) / c.quantiles
            return weighted_mean(per_sample, b.weight), quantiles.mean((0, -1))

        def policy_loss(policy: Any) -> tuple[Tensor, Tensor]:
            action, logp = squashed_sample(policy(b.obs), eps)
            return (alpha * logp - s.q(b.obs, action).mean((0, -1))).mean(), logp

        value = s.minimise("q", q_loss)
        logp = s.minimise("policy", policy_loss)
        if c.tune_alpha:
            s.minimise("log_alpha", lambda log_alpha: temperature_loss(log_alpha(), logp, self.entropy))
        s.follow("q_target", "q", c.tau)
        numbers = {"alpha": alpha, "entropy": -logp.mean(), "q_mean": value.mean(), "target_mean": y.mean()}
        return numbers | {"priority": (y.mean(-1) - value).abs()}
