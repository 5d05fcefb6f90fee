"""REINFORCE (Williams 1992): policy gradient with the return of the whole episode, and a learned baseline if wanted.

    G_t   = Σ_{k≥t} γ^{k−t} r_k                        to the end of the episode
    L_π   = −E[(G_t − V(s_t)) log π(a_t|s_t)] − c_H E[H(π)]
    L_V   = E[½ (V(s_t) − G_t)²]                       `baseline`; without it V = 0 and there is no such network

One update per rollout. An episode that is cut, by a time limit or because the rollout ends before it does, has no known
return: with the baseline γ^k V(s') stands for the rest. Without it there is nothing to stand for the rest: a time limit
counts as an end, and steps of episodes that are still running are left out (which favours short episodes, so `rollout`
should be several episodes long).
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
from rookery.equations.distributions import joint_logp_entropy
from rookery.equations.policy import normalise
from rookery.equations.rollouts import as_rows, ends_inside, judged, values_of
from rookery.equations.value import mean_valid, squared
from rookery.learning.learner import Learner, Outputs
from rookery.learning.optim import Adam, GradConfig, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import Policy, Value


class ReinforceConfig(AlgoConfig):
    """Options of REINFORCE."""

    name: Literal["reinforce"] = "reinforce"  # of the algorithm
    gamma: Share = 0.99  # discount per env step
    lr: Schedule = Schedule(start=1e-3)  # learning rate of the policy
    value_lr: Schedule = Schedule(start=1e-3)  # learning rate of the baseline
    baseline: bool = True  # subtract a learned value, and let it stand for what a cut episode would still have brought
    rollout: Positive = 256  # env steps per env between updates
    entropy_bonus: Schedule = Schedule(start=0.0)  # weight c_H of the entropy
    normalise_return: bool = True  # G − V to mean 0 and deviation 1 over the rollout
    log_std: float = 0.0  # initial log standard deviation of continuous actions
    max_grad_norm: Annotated[float, Field(gt=0)] | None = None  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    curiosity: CuriosityConfig | None = None  # bonus for what is new to the learner; null: none


class Reinforce(OnPolicy):
    """On-policy, any action space."""

    name = "reinforce"
    Config = ReinforceConfig
    plain = True
    defaults = {"model": {"hidden": [64, 64], "activation": "tanh", "init": "orthogonal"}, "env": {"num": 8}}
    metrics = {
        "policy/loss": "policy loss L_π",
        "policy/grad_norm": "norm of the policy's gradient before clipping",
        "value/loss": "loss L_V of the baseline (only with `algo.baseline`)",
        "value/grad_norm": "norm of the baseline's gradient before clipping",
        "entropy": "mean entropy of the policy, in nats",
        "return_to_go": "mean discounted return G of the learnt steps",
        "used": "share of the rollout's steps whose return is known",
    } | CURIOSITY_METRICS

    def networks(self) -> dict[str, nn.Module]:
        policy = Policy(self.obs_spec, self.action_spec, self.model, self.config.log_std)
        critic = {"value": Value(self.obs_spec, self.model)} if self.config.baseline else {}
        return {"policy": policy} | critic | self.curiosity.networks()

    def optimisers(self) -> dict[str, Optimiser]:
        limits = {"clip_norm": self.config.max_grad_norm, **self.config.grad.options}
        critic: dict[str, Optimiser] = {"value": Adam(lr="value_lr", **limits)} if self.config.baseline else {}
        return {"policy": Adam(**limits)} | critic | self.curiosity.optimisers(Adam(**limits))

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return s.policy(obs), state

    def prepare(self, s: Any, b: Any) -> dict[str, Tree]:
        """Returns of the rollout [T, B] as rows [N]; `valid` where they are known."""
        c = self.config
        if c.baseline:
            rows = judged(b, values_of(s.value, b), c.gamma, 1.0)
        else:
            zero = torch.zeros_like(b.reward)
            rows = judged(b, (zero, zero[0], torch.zeros_like(b.final_at[:, 0], dtype=zero.dtype)), c.gamma, 1.0)
            rows["valid"] = rows["valid"] * ends_inside(b)
        rows = self.curiosity.prepare(s, b, rows)
        used = rows["valid"].sum() / b.valid.sum().clamp(min=1)
        if c.normalise_return:
            rows["advantage"] = normalise(rows["advantage"], rows["valid"])
        return as_rows(rows | {"used": used.expand_as(b.reward)})

    def learn(self, learner: Learner, batch: dict[str, Tree], rng: np.random.Generator) -> Iterator[list[Outputs]]:
        rows = learner.prepare(batch)
        if rows["valid"].any():  # else no episode ended: a step would only follow the moments of old gradients
            yield learner.step(rows)

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        spec = self.action_spec

        def loss(policy: Any) -> tuple[Tensor, dict[str, Tensor]]:
            logp, entropy = joint_logp_entropy(spec, policy(b.obs), b.action, mask_of(b.obs))
            bonus = mean_valid(entropy, b.valid)
            return mean_valid(-b.advantage * logp, b.valid) - s.knob.entropy_bonus * bonus, {"entropy": bonus}

        metrics = s.minimise("policy", loss)
        if self.config.baseline:
            s.minimise("value", lambda value: mean_valid(squared(value(b.obs) - b.target), b.valid))
        metrics |= {"return_to_go": mean_valid(b.target, b.valid), "used": b.used.mean()}
        return metrics | self.curiosity.update(s, b)
