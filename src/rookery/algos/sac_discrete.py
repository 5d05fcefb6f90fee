"""Soft actor-critic for discrete actions (Christodoulou 2019): expectations over the actions take the place of samples.

    V(s')  = Σ_a π(a|s') (min_j Q'_j(s', a) − α log π(a|s'))          over the legal actions
    y      = R + γ^k (1 − terminated) V(s')
    L_Q    = Σ_j E[w ½ (Q_j(s, a) − y)²]
    L_π    = E[Σ_a π(a|s) (α log π(a|s) − min_j Q_j(s, a))]
    L_α    = log α · E[H(π(·|s)) − H̄(s)],                            H̄(s) = `target_entropy` · log #legal actions of s
    Q'     ← (1 − τ) Q' + τ Q

A mask of illegal actions (`action_mask`) gives them probability 0, in acting and in all expectations.
Acting samples from π, which is nearly uniform at the start.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

from rookery.acting.rules import Rule, rule_for
from rookery.algos.base import AlgoConfig, Algorithm, Positive, Share
from rookery.core.schedule import Schedule
from rookery.core.spec import mask_of
from rookery.core.tree import Tree
from rookery.equations.distributions import legal, masked_logits
from rookery.equations.soft import entropy_of, soft_value
from rookery.equations.value import pick, squared, weighted_mean
from rookery.learning.optim import Adam, GradConfig, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import Ensemble, QNetwork, Scalar


class SACDiscreteConfig(AlgoConfig):
    """Options of discrete SAC."""

    name: Literal["sac-discrete"] = "sac-discrete"  # of the algorithm
    gamma: Share = 0.99  # discount per env step
    lr: Schedule = Schedule(start=3e-4)  # learning rate of critics and policy
    alpha_lr: Schedule = Schedule(start=3e-4)  # learning rate of log α
    n_step: Positive = 1  # rewards summed before the bootstrap
    tau: Annotated[float, Field(gt=0, le=1)] = 0.005  # how far the target critics move per update
    alpha: Annotated[float, Field(gt=0)] = 1.0  # initial temperature (the temperature itself if `tune_alpha` is false)
    tune_alpha: bool = True  # learn α so that the entropy approaches `target_entropy`
    target_entropy: Share = 0.98  # wanted entropy, as share of that of uniform legal actions
    max_grad_norm: Annotated[float, Field(gt=0)] | None = None  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    rollout: Positive | None = None  # env steps per env and round; null: as many as an update waits for, 16 at most


class SACDiscrete(Algorithm):
    """Off-policy, discrete actions."""

    name = "sac-discrete"
    Config = SACDiscreteConfig
    store_kind = "replay"
    actions = ("discrete",)
    plain = True
    targets = {"q_target": "q"}
    defaults = {"model": {"hidden": [256, 256], "activation": "relu"}, "store": {"batch_size": 256}}
    metrics = {
        "q/loss": "sum of both critics' losses",
        "policy/loss": "policy loss L_π",
        "log_alpha/loss": "temperature loss L_α",
        "q/grad_norm": "norm of the critics' gradient before clipping",
        "policy/grad_norm": "norm of the policy's gradient before clipping",
        "log_alpha/grad_norm": "absolute gradient of log α",
        "alpha": "temperature α",
        "entropy": "mean entropy H of the policy, in nats",
        "q_mean": "mean of the first critic on sampled actions",
        "target_mean": "mean target y",
    }

    def networks(self) -> dict[str, nn.Module]:
        parts = self.obs_spec, self.action_spec.sizes[0], self.model
        logits = QNetwork(*parts)  # one number per action, too
        critics = Ensemble(lambda: QNetwork(*parts), 2)
        return {"q": critics, "policy": logits, "log_alpha": Scalar(math.log(self.config.alpha))}

    def optimisers(self) -> dict[str, Optimiser]:
        limited = Adam(clip_norm=self.config.max_grad_norm, **self.config.grad.options)
        learning: dict[str, Optimiser] = {"q": limited, "policy": limited}
        return learning | ({"log_alpha": Adam(lr="alpha_lr", fixed=True)} if self.config.tune_alpha else {})

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return rule_for(self.action_spec)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return {"logits": s.policy(obs)}, state

    def wanted_entropy(self, mask: Tensor | None) -> Any:
        """H̄, one number or one per state."""
        if mask is None:
            return self.config.target_entropy * math.log(self.action_spec.sizes[0])
        return self.config.target_entropy * legal(mask).sum(-1).log()

    def expected_return(self, s: Any, obs: Tree, state: Any) -> Tensor:
        return s.q.least(obs)

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        mask, next_mask, alpha = mask_of(b.obs), mask_of(b.next_obs), s.log_alpha().exp()
        next_logp = masked_logits(s.policy(b.next_obs), next_mask).log_softmax(-1)  # [B, A]
        y = b.reward + b.discount * soft_value(s.q_target.least(b.next_obs), next_logp, alpha)

        def q_loss(q: Any) -> tuple[Tensor, Tensor]:
            values = pick(q(b.obs), b.action.expand(2, -1))  # [2, B]
            return weighted_mean(squared(values - y).sum(0), b.weight), values[0]

        first = s.minimise("q", q_loss)
        judged = s.q.least(b.obs)

        def policy_loss(policy: Any) -> tuple[Tensor, Tensor]:
            logp = masked_logits(policy(b.obs), mask).log_softmax(-1)
            return -soft_value(judged, logp, alpha).mean(), entropy_of(logp)

        entropy = s.minimise("policy", policy_loss)
        if self.config.tune_alpha:
            excess = entropy - self.wanted_entropy(mask)
            s.minimise("log_alpha", lambda log_alpha: (log_alpha() * excess).mean())
        s.follow("q_target", "q", self.config.tau)
        numbers = {"alpha": alpha, "entropy": entropy.mean(), "q_mean": first.mean(), "target_mean": y.mean()}
        return numbers | {"priority": (y - first).abs()}
