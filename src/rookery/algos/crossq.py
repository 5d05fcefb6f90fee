"""CrossQ (Bhatt 2024): SAC without target networks, which batch renormalisation in the critics makes superfluous.

    [q_j, q'_j]  = Q_j([s, s'], [a, a'])                                     one pass for both, a' ~ π(·|s')
    y            = R + γ^k (1 − terminated) (min_j q'_j − α log π(a'|s'))    without gradient
    L_Q          = Σ_j E[w ½ (q_j − y)²]
    L_π          = E[α log π(a|s) − min_j Q_j(s, a)]                         every `policy_every` updates, as is L_α
    L_α          = −log α · E[log π(a|s) + H̄],                              H̄ = −dim(a) unless given

Batch renormalisation (`rookery.nets.renorm`) stands before the first and after every hidden layer of the critics, and
of the policy unless `renorm_policy` is false. A network learns with the statistics of its batch; where it is only read
(a', Q in L_π, acting) it uses the running ones. Actions live in [−1, 1] here and are rescaled to the env's bounds by
the rule. The first `warmup` steps are uniform.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rookery.acting.noise import squashed
from rookery.acting.rules import Rule
from rookery.algos.base import Algorithm, Positive
from rookery.algos.sac import SoftConfig
from rookery.core.errors import ConfigError
from rookery.core.schedule import Schedule
from rookery.core.tree import Tree, tree_map
from rookery.equations.soft import squashed_sample, temperature_loss
from rookery.equations.value import squared, weighted_mean
from rookery.learning.optim import Adam, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import BatchRenorm, Critic, Ensemble, Scalar, SquashedPolicy
from rookery.nets.config import BatchRenormLayer
from rookery.nets.layers import with_renorm


class CrossQConfig(SoftConfig):
    """Options of CrossQ."""

    name: Literal["crossq"] = "crossq"  # of the algorithm
    lr: Schedule = Schedule(start=1e-3)  # learning rate of critics and policy
    alpha_lr: Schedule = Schedule(start=1e-3)  # learning rate of log α
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.5  # Adam's memory of gradients
    policy_every: Positive = 3  # updates of the critics per update of policy and temperature
    critic_hidden: tuple[Positive, ...] | None = None  # units of the critics' hidden layers; null: model.hidden
    renorm_momentum: Annotated[float, Field(gt=0, le=1)] = 0.01  # weight of a batch in the running statistics
    renorm_warmup: Annotated[int, Field(ge=0)] = 100_000  # updates of plain batch normalisation before renormalisation
    renorm_policy: bool = True  # renormalise in the policy, too


class CrossQ(Algorithm):
    """Off-policy, continuous actions."""

    name = "crossq"
    Config = CrossQConfig
    store_kind = "replay"
    actions = ("box",)
    plain = True
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

    def __init__(self, config: CrossQConfig, obs_spec: Tree, action_spec: Tree, model: Any):
        super().__init__(config, obs_spec, action_spec, model)
        self.width = math.prod(action_spec.shape)
        self.entropy = -float(self.width) if config.target_entropy is None else config.target_entropy
        self.schedule = {"update": 1, "update_policy": config.policy_every}

    def networks(self) -> dict[str, nn.Module]:
        c = self.config
        norm = BatchRenormLayer(type="batch_renorm", momentum=c.renorm_momentum, warmup=c.renorm_warmup)
        wide = {} if c.critic_hidden is None else {"hidden": c.critic_hidden}
        judge = with_renorm(self.model.model_copy(update=wide), self.obs_spec, norm)
        actor = with_renorm(self.model, self.obs_spec, norm) if c.renorm_policy else self.model
        policy = SquashedPolicy(self.obs_spec, self.action_spec, actor, c.bounds)
        critics = Ensemble(lambda: Critic(self.obs_spec, self.action_spec, judge), 2)
        if not any(isinstance(part, BatchRenorm) for part in critics.modules()):
            raise ConfigError(
                "algo.name=crossq has no target networks and needs batch renormalisation, but model.layers or "
                "model.encoder builds critics without it. Add layers of {type: batch_renorm} (in an own encoder, "
                "rookery.nets.BatchRenorm), or use sac."
            )
        return {"q": critics, "policy": policy, "log_alpha": Scalar(math.log(c.alpha))}

    def optimisers(self) -> dict[str, Optimiser]:
        c = self.config
        limited = Adam(clip_norm=c.max_grad_norm, beta1=c.beta1, **c.grad.options)
        learning: dict[str, Optimiser] = {"q": limited, "policy": limited}
        return learning | ({"log_alpha": Adam(lr="alpha_lr", beta1=c.beta1, fixed=True)} if c.tune_alpha else {})

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
        both = tree_map(lambda now, after: torch.cat([now, after]), b.obs, b.next_obs)

        def loss(q: Any) -> tuple[Tensor, dict[str, Tensor]]:
            values, after = q(both, torch.cat([taken, next_action])).split(rows, -1)  # [2, B] each
            y = (b.reward + b.discount * (after.amin(0) - alpha * next_logp)).detach()
            return weighted_mean(squared(values - y).sum(0), b.weight), {"q": values[0], "y": y}

        out = s.minimise("q", loss)
        numbers = {"alpha": alpha, "q_mean": out["q"].mean(), "target_mean": out["y"].mean()}
        return numbers | {"priority": (out["y"] - out["q"]).abs()}

    def update_policy(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        alpha, eps = s.log_alpha().exp(), s.normal(len(b.reward), self.width)

        def loss(policy: Any) -> tuple[Tensor, Tensor]:
            action, logp = squashed_sample(policy(b.obs), eps)
            return (alpha * logp - s.q.least(b.obs, action)).mean(), logp

        logp = s.minimise("policy", loss)
        if self.config.tune_alpha:
            s.minimise("log_alpha", lambda log_alpha: temperature_loss(log_alpha(), logp, self.entropy))
        return {"entropy": -logp.mean()}
