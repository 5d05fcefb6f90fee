"""Randomised ensembled double Q-learning (Chen 2021): SAC with many critics, and so with many updates per step.

    M      ⊂ {1, …, N}                                                           `subset` of them, drawn anew per update
    y      = R + γ^k (1 − terminated) (min_{j ∈ M} Q'_j(s', a') − α log π(a'|s')),    a' ~ π(·|s')
    L_Q    = Σ_j E[w ½ (Q_j(s, a) − y)²]
    L_π    = E[α log π(a|s) − mean_j Q_j(s, a)]                                  every `policy_every` updates, as is L_α
    L_α    = −log α · E[log π(a|s) + H̄],                                             H̄ = −dim(a) unless given
    Q'     ← (1 − τ) Q' + τ Q

How many updates a step brings is `store.updates_per_step`, 20 here unless given. Actions live in [−1, 1] and are
rescaled to the env's bounds by the rule. The first `warmup` steps are uniform.
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
from rookery.equations.soft import squashed_sample, temperature_loss
from rookery.equations.value import squared, weighted_mean
from rookery.learning.optim import Adam, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import Critic, Ensemble, Scalar, SquashedPolicy


class REDQConfig(SoftConfig):
    """Options of REDQ."""

    name: Literal["redq"] = "redq"  # of the algorithm
    tau: Annotated[float, Field(gt=0, le=1)] = 0.005  # how far the target critics move per update
    critics: Annotated[int, Field(ge=1, le=1_000)] = 10  # N: size of the ensemble
    subset: Positive = 2  # critics whose smallest value is the target
    policy_every: Positive = 20  # updates of the critics per update of policy and temperature

    @model_validator(mode="after")
    def _subset_fits(self) -> Self:
        if self.subset > self.critics:
            raise ValueError(f"algo.subset={self.subset} must not be larger than algo.critics={self.critics}")
        return self


class REDQ(Algorithm):
    """Off-policy, continuous actions."""

    name = "redq"
    Config = REDQConfig
    store_kind = "replay"
    actions = ("box",)
    plain = True
    targets = {"q_target": "q"}
    defaults = {
        "model": {"hidden": [256, 256], "activation": "relu"},
        "store": {"batch_size": 256, "updates_per_step": 20},
    }
    metrics = {
        "q/loss": "sum of all critics' losses",
        "policy/loss": "policy loss L_π",
        "log_alpha/loss": "temperature loss L_α",
        "q/grad_norm": "norm of the critics' gradient before clipping",
        "policy/grad_norm": "norm of the policy's gradient before clipping",
        "log_alpha/grad_norm": "absolute gradient of log α",
        "alpha": "temperature α",
        "entropy": "estimate −E[log π(a|s)] of the policy's entropy, in nats",
        "q_mean": "mean of all critics on sampled actions",
        "q_spread": "mean standard deviation of the critics on one sampled action",
        "target_mean": "mean target y",
    }

    def __init__(self, config: REDQConfig, obs_spec: Tree, action_spec: Tree, model: Any):
        super().__init__(config, obs_spec, action_spec, model)
        self.width = math.prod(action_spec.shape)
        self.entropy = -float(self.width) if config.target_entropy is None else config.target_entropy
        self.schedule = {"update": 1, "update_policy": config.policy_every}

    def networks(self) -> dict[str, nn.Module]:
        c, parts = self.config, (self.obs_spec, self.action_spec, self.model)
        policy, critics = SquashedPolicy(*parts, c.bounds), Ensemble(lambda: Critic(*parts), c.critics)
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
        return s.q(obs, s.policy(obs)[0].tanh()).mean(0)

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, rows = self.config, len(b.reward)
        taken, alpha = b.action.reshape(rows, self.width), s.log_alpha().exp()
        next_action, next_logp = squashed_sample(s.policy(b.next_obs), s.normal(rows, self.width))
        subset = s.uniform(1, c.critics)[0].argsort()[: c.subset]  # without repetition, one for all rows
        judged = s.q_target(b.next_obs, next_action).index_select(0, subset).amin(0)
        y = b.reward + b.discount * (judged - alpha * next_logp)

        def loss(q: Any) -> tuple[Tensor, Tensor]:
            values = q(b.obs, taken)  # [N, B]
            return weighted_mean(squared(values - y).sum(0), b.weight), values

        values = s.minimise("q", loss)
        s.follow("q_target", "q", c.tau)
        spread = values.std(0, correction=0).mean()
        numbers = {"alpha": alpha, "q_mean": values.mean(), "q_spread": spread, "target_mean": y.mean()}
        return numbers | {"priority": (y - values).abs().mean(0)}

    def update_policy(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        alpha, eps = s.log_alpha().exp(), s.normal(len(b.reward), self.width)

        def loss(policy: Any) -> tuple[Tensor, Tensor]:
            action, logp = squashed_sample(policy(b.obs), eps)
            return (alpha * logp - s.q(b.obs, action).mean(0)).mean(), logp

        logp = s.minimise("policy", loss)
        if self.config.tune_alpha:
            s.minimise("log_alpha", lambda log_alpha: temperature_loss(log_alpha(), logp, self.entropy))
        return {"entropy": -logp.mean()}
