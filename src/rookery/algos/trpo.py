"""Trust region policy optimisation (Schulman 2015) with generalised advantages (Schulman 2016).

    L(θ)   = −E[ρ A],   ρ = π_θ(a|s) / π_old(a|s)         minimised subject to E[KL(π_old ‖ π_θ)] ≤ δ
    θ'     = θ − αʲ √(2 δ / xᵀ F x) x,   x = F⁻¹ ∇L       `learning/natural.py`: conjugate gradients and a line search
    L_V    = E[½ (V(s) − R)²]                             Adam, several epochs of minibatches

One step of the policy per rollout. A time limit bootstraps from the true final observation. Means are over valid rows.
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
from rookery.core.tree import Tree
from rookery.equations.distributions import joint_divergence, joint_logp_entropy
from rookery.equations.policy import normalise
from rookery.equations.rollouts import as_rows, judged, shuffled, values_of
from rookery.equations.value import mean_valid, squared
from rookery.learning.learner import Learner, Outputs
from rookery.learning.natural import TrustRegion, natural_step
from rookery.learning.optim import Adam, GradConfig, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import Policy, Value


class TRPOConfig(AlgoConfig):
    """Options of TRPO."""

    name: Literal["trpo"] = "trpo"  # of the algorithm
    gamma: Share = 0.99  # discount per env step
    lam: Share = 0.95  # λ of the generalised advantage
    lr: Schedule = Schedule(start=1e-3)  # learning rate of the critic; the policy's step has its own length
    rollout: Positive = 128  # env steps per env between updates
    epochs: Positive = 10  # passes of the critic over a rollout
    minibatches: Positive = 4  # equal parts of a rollout per epoch, for the critic; the policy sees all at once
    radius: Schedule = Schedule(start=0.01)  # δ: largest mean KL(π_old ‖ π) of a step
    damping: Annotated[float, Field(ge=0)] = 0.1  # added to the diagonal of the Fisher matrix
    iterations: Positive = 15  # of conjugate gradients
    backtracks: Positive = 10  # lengths of the step that are tried
    shrink: Annotated[float, Field(gt=0, lt=1)] = 0.8  # α: from one length to the next
    normalise_advantage: bool = True  # to mean 0 and deviation 1 over the rollout
    log_std: float = 0.0  # initial log standard deviation of continuous actions
    max_grad_norm: Annotated[float, Field(gt=0)] | None = None  # norm to which the critic's gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of the critic's gradients
    curiosity: CuriosityConfig | None = None  # bonus for what is new to the learner; null: none


class TRPO(OnPolicy):
    """On-policy, any action space."""

    name = "trpo"
    Config = TRPOConfig
    plain = True
    eager_only = "the policy's step searches for its length: second derivatives, and branches on what they give"
    defaults = {"model": {"hidden": [64, 64], "activation": "tanh", "init": "orthogonal"}, "env": {"num": 8}}
    metrics = {
        "policy/loss": "surrogate loss L before the step",
        "policy/grad_norm": "norm of its gradient",
        "policy/kl": "mean KL(π_old ‖ π) of the step that was taken",
        "policy/step": "share of the full length that was taken: 1 is all of it, 0 means that no length was good",
        "policy/improvement": "by how much the step lowered L",
        "value/loss": "value loss L_V",
        "value/grad_norm": "norm of the critic's gradient before clipping",
        "entropy": "mean entropy of the policy before the step, in nats",
        "explained_variance": "1 − Var(R − V) / Var(R): 1 is a perfect critic, 0 a constant one",
    } | CURIOSITY_METRICS

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        c, columns = config.algo, config.env.num * config.pool.workers
        if columns * c.rollout % c.minibatches:
            rows = f"env.num × pool.workers × algo.rollout ({c.rollout}) = {columns * c.rollout}"
            return [f"algo.minibatches={c.minibatches} must divide {rows} into equal parts. Change one of them."]
        return []

    def networks(self) -> dict[str, nn.Module]:
        policy = Policy(self.obs_spec, self.action_spec, self.model, self.config.log_std)
        return {"policy": policy, "value": Value(self.obs_spec, self.model)} | self.curiosity.networks()

    def optimisers(self) -> dict[str, Optimiser]:
        adam = Adam(clip_norm=self.config.max_grad_norm, **self.config.grad.options)
        return {"value": adam} | self.curiosity.optimisers(adam)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return s.policy(obs), state

    def prepare(self, s: Any, b: Any) -> dict[str, Tree]:
        """Advantages of the rollout [T, B] as rows [N], and the policy as it is now."""
        c = self.config
        rows = judged(b, values_of(s.value, b), c.gamma, c.lam) | {"logp": b.logp, "old": s.policy(b.obs)}
        rows = self.curiosity.prepare(s, b, rows, c.lam)
        if c.normalise_advantage:
            rows["advantage"] = normalise(rows["advantage"], rows["valid"])
        return as_rows(rows)

    def learn(self, learner: Learner, batch: dict[str, Tree], rng: np.random.Generator) -> Iterator[list[Outputs]]:
        rows = learner.prepare(batch)
        moved = [self.move(learner, rows)]
        for _ in range(self.config.epochs):
            for part in shuffled(rows, self.config.minibatches, rng):
                yield [*moved, *learner.step(part)]
                moved = []

    def move(self, learner: Learner, rows: dict[str, Any]) -> Outputs:
        """The policy's step."""
        c, spec, obs, valid = self.config, self.action_spec, rows["obs"], rows["valid"]
        mask, old = mask_of(obs), rows["old"]

        def loss(policy: Any) -> Tensor:
            logp, _ = joint_logp_entropy(spec, policy(obs), rows["action"], mask)
            return -mean_valid((logp - rows["logp"]).exp() * rows["advantage"], valid)

        def distance(policy: Any) -> Tensor:
            return mean_valid(joint_divergence(spec, old, policy(obs), mask), valid)

        region = TrustRegion(float(learner.eager.knob.radius), c.damping, c.iterations, c.backtracks, c.shrink)
        step = natural_step(learner.nets["policy"], loss, distance, region)
        entropy = joint_logp_entropy(spec, old, rows["action"], mask)[1]
        numbers = {f"policy/{name}": number for name, number in step.items()}
        numbers |= {"entropy": mean_valid(entropy, valid), "explained_variance": rows["explained"].mean()}
        return Outputs({}, tuple(numbers), torch.stack(list(numbers.values())).cpu().numpy())

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        s.minimise("value", lambda value: mean_valid(squared(value(b.obs) - b.target), b.valid))
        return self.curiosity.update(s, b)
