"""Phasic policy gradient (Cobbe 2021):
PPO with networks apart, and every `phase` rollouts a phase that shares what values know.

    policy phase      L_π   = −E[min(ρ A, clip(ρ, 1 − ε, 1 + ε) A)] − c_H E[H(π)]         after every rollout
                      L_V   = E[½ (V − R)²]
    auxiliary phase   L_J   = E[½ (V_π − R)²] + β E[KL(π_old ‖ π)]                        over the rollouts of the phase
                      L_V   as above

V_π is a second head on the policy's encoder: what tells values becomes features of the policy, while KL keeps the
policy itself as it was when the phase began. R of earlier rollouts is that of their own time. The auxiliary loss has
moments of its own (Adam). The rollouts of a running phase are kept in memory and are part of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from rookery.algos.base import AlgoConfig, Positive, Share
from rookery.algos.curiosity import CURIOSITY_METRICS, CuriosityConfig
from rookery.algos.onpolicy import OnPolicy
from rookery.core.schedule import Schedule
from rookery.core.spec import mask_of
from rookery.core.tree import Tree, tree_map
from rookery.equations.distributions import joint_divergence, joint_logp_entropy
from rookery.equations.policy import clip_fraction, kl_estimate, normalise, ppo_policy_loss
from rookery.equations.rollouts import as_rows, judged, shuffled, values_of
from rookery.equations.value import mean_valid, squared
from rookery.learning.learner import Learner, Outputs
from rookery.learning.optim import Adam, GradConfig, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import ActorCritic, Value


class PPGConfig(AlgoConfig):
    """Options of PPG."""

    name: Literal["ppg"] = "ppg"  # of the algorithm
    gamma: Share = 0.99  # discount per env step
    lam: Share = 0.95  # λ of the generalised advantage
    lr: Schedule = Schedule(start=5e-4)  # learning rate of Adam, in both phases
    rollout: Positive = 128  # env steps per env between updates
    epochs: Positive = 1  # passes over a rollout
    minibatches: Positive = 4  # equal parts of a rollout per epoch
    clip: Schedule = Schedule(start=0.2)  # ε: how far the probability ratio may move from 1
    entropy_bonus: Schedule = Schedule(start=0.01)  # weight c_H of the entropy
    normalise_advantage: bool = True  # to mean 0 and deviation 1 over the rollout
    phase: Positive = 16  # rollouts between auxiliary phases; they are kept in memory
    auxiliary_epochs: Positive = 6  # passes over them
    auxiliary_minibatches: Positive = 16  # equal parts of each pass
    clone: Annotated[float, Field(ge=0)] = 1.0  # weight β of KL(π_old ‖ π)
    log_std: float = 0.0  # initial log standard deviation of continuous actions
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 0.5  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    curiosity: CuriosityConfig | None = None  # bonus for what is new to the learner; null: none


class PPG(OnPolicy):
    """On-policy, any action space."""

    name = "ppg"
    Config = PPGConfig
    plain = True
    defaults = {"model": {"hidden": [64, 64], "activation": "tanh", "init": "orthogonal"}, "env": {"num": 8}}
    metrics = {
        "policy/loss": "policy loss L_π",
        "policy/grad_norm": "norm of its gradient before clipping",
        "value/loss": "value loss L_V",
        "value/grad_norm": "norm of its gradient before clipping",
        "entropy": "mean entropy of the policy, in nats",
        "kl": "estimate E[(ρ − 1) − log ρ] of how far the policy has moved since the rollout",
        "clip_fraction": "share of samples whose ratio left the clip range",
        "explained_variance": "1 − Var(R − V) / Var(R): 1 is a perfect critic, 0 a constant one",
        "auxiliary/loss": "joint loss L_J of the auxiliary phase",
        "auxiliary/grad_norm": "norm of its gradient before clipping",
        "auxiliary/value_loss": "loss of the policy's value head",
        "auxiliary/kl": "mean KL(π_old ‖ π) since the auxiliary phase began",
    } | CURIOSITY_METRICS

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        c, rows = config.algo, config.env.num * config.pool.workers * config.algo.rollout
        product, broken = f"env.num × pool.workers × algo.rollout ({c.rollout})", []
        if rows % c.minibatches:
            broken.append(f"algo.minibatches={c.minibatches} must divide {product} = {rows}. Change one of them.")
        if rows * c.phase % c.auxiliary_minibatches:
            many = f"{product} × algo.phase ({c.phase}) = {rows * c.phase}"
            broken.append(
                f"algo.auxiliary_minibatches={c.auxiliary_minibatches} must divide {many}. Change one of them."
            )
        return broken

    @classmethod
    def updates_of(cls, config: Any, steps: int | None) -> int | None:
        c, policy = config.algo, super().updates_of(config, steps)
        if policy is None:
            return None
        phases = policy // (c.epochs * c.minibatches) // c.phase
        return policy + phases * c.auxiliary_epochs * c.auxiliary_minibatches

    def networks(self) -> dict[str, nn.Module]:
        policy = ActorCritic(self.obs_spec, self.action_spec, self.model, shared=True, log_std=self.config.log_std)
        return {"policy": policy, "value": Value(self.obs_spec, self.model)} | self.curiosity.networks()

    def optimisers(self) -> dict[str, Optimiser]:
        options = {"clip_norm": self.config.max_grad_norm, "eps": 1e-5, **self.config.grad.options}
        own = {"policy": Adam(**options), "value": Adam(**options), "auxiliary": Adam(of="policy", **options)}
        return own | self.curiosity.optimisers(Adam(**options))

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return s.policy.policy(obs), state

    def prepare(self, s: Any, b: Any) -> dict[str, Tree]:
        """Advantages of the rollout [T, B] as rows [N]."""
        c = self.config
        rows = judged(b, values_of(s.value, b), c.gamma, c.lam) | {"logp": b.logp}
        rows = self.curiosity.prepare(s, b, rows, c.lam)
        if c.normalise_advantage:
            rows["advantage"] = normalise(rows["advantage"], rows["valid"])
        return as_rows(rows)

    def learn(self, learner: Learner, batch: dict[str, Tree], rng: np.random.Generator) -> Iterator[list[Outputs]]:
        c, rows = self.config, learner.prepare(batch)
        for _ in range(c.epochs):
            for part in shuffled(rows, c.minibatches, rng):
                yield learner.step(part)
        kept = {name: tree_map(torch.clone, rows[name]) for name in ("obs", "target", "valid")}
        learner.kept[str(len(learner.kept))] = kept
        if len(learner.kept) < c.phase:
            return
        whole = tree_map(lambda *parts: torch.cat(parts), *learner.kept.values())
        learner.kept = {}
        with torch.no_grad():
            whole["old"] = learner.eager.policy.policy(whole["obs"])
        for _ in range(c.auxiliary_epochs):
            for part in shuffled(whole, c.auxiliary_minibatches, rng):
                yield learner.step(part, "auxiliary")

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        spec = self.action_spec

        def loss(policy: Any) -> tuple[Tensor, dict[str, Tensor]]:
            logp, entropy = joint_logp_entropy(spec, policy.policy(b.obs), b.action, mask_of(b.obs))
            log_ratio, bonus = logp - b.logp, mean_valid(entropy, b.valid)
            surrogate = mean_valid(ppo_policy_loss(log_ratio, b.advantage, s.knob.clip), b.valid)
            moved = {"kl": kl_estimate(log_ratio), "clip_fraction": clip_fraction(log_ratio, s.knob.clip)}
            aux = {"entropy": bonus} | {key: mean_valid(x, b.valid) for key, x in moved.items()}
            return surrogate - s.knob.entropy_bonus * bonus, aux

        metrics = s.minimise("policy", loss)
        s.minimise("value", lambda value: mean_valid(squared(value(b.obs) - b.target), b.valid))
        return metrics | {"explained_variance": b.explained.mean()} | self.curiosity.update(s, b)

    def auxiliary(self, s: Any, b: Any) -> dict[str, Tensor]:
        c, spec = self.config, self.action_spec

        def joint(policy: Any) -> tuple[Tensor, dict[str, Tensor]]:
            params, value = policy(b.obs)
            critic = mean_valid(squared(value - b.target), b.valid)
            kl = mean_valid(joint_divergence(spec, b.old, params, mask_of(b.obs)), b.valid)
            return critic + c.clone * kl, {"auxiliary/value_loss": critic, "auxiliary/kl": kl}

        metrics = s.minimise("policy", joint, by="auxiliary")
        s.minimise("value", lambda value: mean_valid(squared(value(b.obs) - b.target), b.valid))
        return metrics
