"""Asynchronous PPO: several clipped steps (Schulman 2017) on rollouts of older policies,
corrected by V-trace (Espeholt 2018).

    A, v   = V-trace of the rollout with ρ = min(ρ̄, π_old / μ)      μ acted, π_old is the policy when its batch arrives
    ρ̂      = π(a|s) / π_old(a|s)
    L      = −E[min(ρ̂ A, clip(ρ̂, 1 − ε, 1 + ε) A)] + c_V E[½ (V − v)²] − c_H E[H(π)]

The clip is around π_old, not around μ: how old the data are is corrected once by V-trace, how far the policy moves is
limited by the clip (the decoupled objective of Hilton 2022). Made for `pool.mode=async`. Means are over valid rows. Any
action space, action masks; with `model.core` a rollout is one sequence per env.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from rookery.algos.base import AlgoConfig, Positive, Share
from rookery.algos.curiosity import CURIOSITY_METRICS, CuriosityConfig
from rookery.algos.onpolicy import OnPolicy
from rookery.core.schedule import Schedule
from rookery.core.spec import mask_of
from rookery.core.tree import Tree
from rookery.equations.distributions import joint_logp_entropy
from rookery.equations.policy import clip_fraction, kl_estimate, normalise, ppo_policy_loss
from rookery.equations.rollouts import as_rows, as_sequences, corrected, shuffled
from rookery.equations.value import mean_valid, squared
from rookery.learning.learner import Learner, Outputs
from rookery.learning.optim import Adam, GradConfig, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import ActorCritic
from rookery.nets.policy import memory_spec


class APPOConfig(AlgoConfig):
    """Options of APPO."""

    name: Literal["appo"] = "appo"  # of the algorithm
    gamma: Share = 0.99  # discount per env step
    lr: Schedule = Schedule(start=3e-4)  # learning rate of Adam
    rollout: Positive = 64  # env steps per env and chunk
    epochs: Positive = 2  # passes over a rollout
    minibatches: Positive = 2  # equal parts of a rollout per epoch
    clip: Schedule = Schedule(start=0.2)  # ε: how far the probability ratio may move from 1
    rho_max: Annotated[float, Field(gt=0)] = 1.0  # ρ̄: largest weight of a step
    c_max: Annotated[float, Field(gt=0)] = 1.0  # c̄: how far a correction reaches back
    value_cost: Annotated[float, Field(ge=0)] = 0.5  # weight c_V of the value loss
    entropy_bonus: Schedule = Schedule(start=0.0)  # weight c_H of the entropy
    normalise_advantage: bool = True  # to mean 0 and deviation 1 over the rollout
    log_std: float = 0.0  # initial log standard deviation of continuous actions
    sde_every: Positive | None = None  # steps that noise stays one function of the state (gSDE); null: new in each
    shared: bool = False  # one encoder (and memory) for policy and value
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 0.5  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    curiosity: CuriosityConfig | None = None  # bonus for what is new to the learner; null: none


class APPO(OnPolicy):
    """Nearly on-policy, any action space."""

    name = "appo"
    Config = APPOConfig
    plain = True
    recurrent = "may"
    corrects_lag = True
    defaults = {"model": {"hidden": [64, 64], "activation": "tanh", "init": "orthogonal"}, "env": {"num": 8}}
    metrics = {
        "ac/loss": "total loss L",
        "ac/grad_norm": "norm of the gradient before clipping",
        "policy_loss": "clipped surrogate loss",
        "value_loss": "value loss",
        "entropy": "mean entropy of the policy, in nats",
        "kl": "estimate E[(ρ̂ − 1) − log ρ̂] of how far the policy has moved since the batch arrived",
        "clip_fraction": "share of samples whose ratio left the clip range",
        "ratio": "mean π_old/μ of the rows: 1 without lag",
        "explained_variance": "1 − Var(v − V) / Var(v): 1 is a perfect critic, 0 a constant one",
    } | CURIOSITY_METRICS

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        c, together = config.algo, 1 if config.pool.mode == "async" else config.pool.workers
        parts = config.env.num * together * (1 if config.model.core is not None else c.rollout)
        if parts % c.minibatches:
            return [
                f"algo.minibatches={c.minibatches} must divide the {parts} rows (with model.core: sequences) of a "
                "batch into equal parts. Change algo.minibatches, algo.rollout or env.num."
            ]
        return []

    def networks(self) -> dict[str, nn.Module]:
        c = self.config
        options = {"shared": c.shared, "log_std": c.log_std, "state_dependent": c.sde_every is not None}
        ac = ActorCritic(self.obs_spec, self.action_spec, self.model, **options)
        return {"ac": ac} | self.curiosity.networks()

    def optimisers(self) -> dict[str, Optimiser]:
        adam = Adam(clip_norm=self.config.max_grad_norm, eps=1e-5, **self.config.grad.options)
        return {"ac": adam} | self.curiosity.optimisers(adam)

    def memory(self) -> Tree:
        return memory_spec(self.model, self.config.shared)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return s.ac.act(obs, state)

    def prepare(self, s: Any, b: Any) -> dict[str, Tree]:
        """V-trace of the rollout [T, B] as rows [N], or as sequences [T, B] for a memory;
        `logp` becomes that of π_old.
        """
        c, spec = self.config, self.action_spec
        logp, _ = joint_logp_entropy(spec, s.ac.decide(b), b.action, mask_of(b.obs))
        rows = corrected(b, s.ac.judge(b), logp, c.gamma, c.rho_max, c.c_max)
        rows = self.curiosity.prepare(s, b, rows, lag=(logp - b.logp, c.rho_max, c.c_max))
        if c.normalise_advantage:
            rows["advantage"] = normalise(rows["advantage"], rows["valid"])
        return as_rows(rows) if self.model.core is None else as_sequences(rows, b)

    def learn(self, learner: Learner, batch: dict[str, Tree], rng: np.random.Generator) -> Iterator[list[Outputs]]:
        rows, axis = learner.prepare(batch), 0 if self.model.core is None else 1
        for _ in range(self.config.epochs):
            for part in shuffled(rows, self.config.minibatches, rng, axis):
                yield learner.step(part)

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, spec = self.config, self.action_spec

        def loss(ac: Any) -> tuple[Tensor, dict[str, Tensor]]:
            params, value = ac.read(b)
            logp, entropy = joint_logp_entropy(spec, params, b.action, mask_of(b.obs))
            log_ratio = logp - b.logp
            policy = mean_valid(ppo_policy_loss(log_ratio, b.advantage, s.knob.clip, None), b.valid)
            critic, bonus = mean_valid(squared(value - b.target), b.valid), mean_valid(entropy, b.valid)
            moved = {"kl": kl_estimate(log_ratio), "clip_fraction": clip_fraction(log_ratio, s.knob.clip)}
            aux = {"policy_loss": policy, "value_loss": critic, "entropy": bonus}
            aux |= {key: mean_valid(x, b.valid) for key, x in moved.items()}
            return policy + c.value_cost * critic - s.knob.entropy_bonus * bonus, aux

        metrics = s.minimise("ac", loss)
        metrics |= {"ratio": mean_valid(b.ratio, b.valid), "explained_variance": b.explained.mean()}
        return metrics | self.curiosity.update(s, b)
