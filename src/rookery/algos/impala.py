"""IMPALA (Espeholt 2018): actor-critic from rollouts of older policies, corrected by V-trace;
upgoing returns (Vinyals 2019) as an option.

    ρ_t    = min(ρ̄, π(a_t|s_t) / μ(a_t|s_t)),     c_t = min(c̄, π(a_t|s_t) / μ(a_t|s_t))       μ acted, π learns
    δ_t    = ρ_t (r_t + γ (1 − terminated_t) V(s'_t) − V(s_t))
    v_t    = V(s_t) + δ_t + γ c_t (1 − done_t) (v_{t+1} − V(s_{t+1}))
    A_t    = ρ_t (r_t + γ v_{t+1} − V(s_t))
    U_t    = ρ_t (G_t − V(s_t))             G follows the data while they do better than expected
    L      = −E[(A + c_U U) log π(a|s)] + c_V E[½ (V − v)²] − c_H E[H(π)]

Made for `pool.mode=async`, where each chunk of a worker is a batch of its own; in rounds, or in one process,
it is on-policy (ρ = 1). Means are over valid rows. Any action space, action masks; with `model.core` a
rollout is one sequence per env.
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
from rookery.equations.rollouts import as_rows, as_sequences, corrected
from rookery.equations.value import mean_valid, squared
from rookery.learning.learner import Learner, Outputs
from rookery.learning.optim import GradConfig, Optimiser, RMSprop
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import ActorCritic
from rookery.nets.policy import memory_spec


class IMPALAConfig(AlgoConfig):
    """Options of IMPALA."""

    name: Literal["impala"] = "impala"  # of the algorithm
    gamma: Share = 0.99  # discount per env step
    lr: Schedule = Schedule(start=6e-4)  # learning rate
    optimiser: str | None = "rmsprop"  # the paper's; or adam, sgd, any of torch.optim, module:Class
    rollout: Positive = 20  # env steps per env and chunk
    rho_max: Annotated[float, Field(gt=0)] = 1.0  # ρ̄: largest weight of a step; decides what the values converge to
    c_max: Annotated[float, Field(gt=0)] = 1.0  # c̄: how far a correction reaches back
    upgo: Annotated[float, Field(ge=0)] = 0.0  # weight c_U of upgoing returns
    value_cost: Annotated[float, Field(ge=0)] = 0.5  # weight c_V of the value loss
    entropy_bonus: Schedule = Schedule(start=0.01)  # weight c_H of the entropy
    log_std: float = 0.0  # initial log standard deviation of continuous actions
    sde_every: Positive | None = None  # steps that noise stays one function of the state (gSDE); null: new in each
    shared: bool = False  # one encoder (and memory) for policy and value
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 40.0  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    curiosity: CuriosityConfig | None = None  # bonus for what is new to the learner; null: none


class IMPALA(OnPolicy):
    """Nearly on-policy, any action space."""

    name = "impala"
    Config = IMPALAConfig
    plain = True
    recurrent = "may"
    corrects_lag = True
    defaults = {"model": {"hidden": [64, 64], "activation": "tanh", "init": "orthogonal"}, "env": {"num": 8}}
    metrics = {
        "ac/loss": "total loss L",
        "ac/grad_norm": "norm of the gradient before clipping",
        "policy_loss": "policy-gradient loss",
        "value_loss": "value loss",
        "entropy": "mean entropy of the policy, in nats",
        "ratio": "mean π/μ of the rows when their batch arrives: 1 without lag",
        "explained_variance": "1 − Var(v − V) / Var(v): 1 is a perfect critic, 0 a constant one",
    } | CURIOSITY_METRICS

    def networks(self) -> dict[str, nn.Module]:
        c = self.config
        options = {"shared": c.shared, "log_std": c.log_std, "state_dependent": c.sde_every is not None}
        ac = ActorCritic(self.obs_spec, self.action_spec, self.model, **options)
        return {"ac": ac} | self.curiosity.networks()

    def optimisers(self) -> dict[str, Optimiser]:
        limited = RMSprop(clip_norm=self.config.max_grad_norm, eps=1e-5, **self.config.grad.options)
        return {"ac": limited} | self.curiosity.optimisers(limited)

    def memory(self) -> Tree:
        return memory_spec(self.model, self.config.shared)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return s.ac.act(obs, state)

    def prepare(self, s: Any, b: Any) -> dict[str, Tree]:
        """V-trace of the rollout [T, B] as rows [N], or as sequences [T, B] for a memory."""
        c, spec = self.config, self.action_spec
        logp, _ = joint_logp_entropy(spec, s.ac.decide(b), b.action, mask_of(b.obs))
        rows = corrected(b, s.ac.judge(b), logp, c.gamma, c.rho_max, c.c_max)
        rows = self.curiosity.prepare(s, b, rows, lag=(logp - b.logp, c.rho_max, c.c_max))
        return as_rows(rows) if self.model.core is None else as_sequences(rows, b)

    def learn(self, learner: Learner, batch: dict[str, Tree], rng: np.random.Generator) -> Iterator[list[Outputs]]:
        yield learner.step(learner.prepare(batch))

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, spec = self.config, self.action_spec

        def loss(ac: Any) -> tuple[Tensor, dict[str, Tensor]]:
            params, value = ac.read(b)
            logp, entropy = joint_logp_entropy(spec, params, b.action, mask_of(b.obs))
            policy = mean_valid(-(b.advantage + c.upgo * b.upgoing) * logp, b.valid)
            critic, bonus = mean_valid(squared(value - b.target), b.valid), mean_valid(entropy, b.valid)
            aux = {"policy_loss": policy, "value_loss": critic, "entropy": bonus}
            return policy + c.value_cost * critic - s.knob.entropy_bonus * bonus, aux

        metrics = s.minimise("ac", loss)
        metrics |= {"ratio": mean_valid(b.ratio, b.valid), "explained_variance": b.explained.mean()}
        return metrics | self.curiosity.update(s, b)
