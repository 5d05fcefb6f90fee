"""Advantage actor-critic, synchronous (Mnih 2016), with generalised advantages (Schulman 2016).

    δ_t    = r_t + γ (1 − terminated_t) V(s'_t) − V(s_t)           s' the true successor, also at a time limit
    A_t    = δ_t + γ λ (1 − done_t) A_{t+1},      R_t = A_t + V(s_t)        λ = 1: the n-step return of the paper
    L      = −E[A log π(a|s)] + c_V E[½ (V − R)²] − c_H E[H(π)]

One update per rollout, from all envs at once, which takes the place of the paper's asynchronous threads. Means are over
valid rows. Discrete, multi-discrete, multi-binary and continuous actions; action masks. With `model.core` policy and
value have a memory: each env's rollout is one sequence, unrolled from the state recorded when acting.
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
from rookery.equations.policy import normalise
from rookery.equations.rollouts import as_rows, as_sequences, judged
from rookery.equations.value import mean_valid, squared
from rookery.learning.learner import Learner, Outputs
from rookery.learning.optim import GradConfig, Optimiser, RMSprop
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import ActorCritic
from rookery.nets.policy import memory_spec


class A2CConfig(AlgoConfig):
    """Options of A2C."""

    name: Literal["a2c"] = "a2c"  # of the algorithm
    gamma: Share = 0.99  # discount per env step
    lam: Share = 1.0  # λ of the generalised advantage; 1: n-step returns
    lr: Schedule = Schedule(start=7e-4)  # learning rate
    optimiser: str | None = "rmsprop"  # the paper's; or adam, sgd, any of torch.optim, module:Class
    rollout: Positive = 5  # env steps per env between updates
    value_cost: Annotated[float, Field(ge=0)] = 0.5  # weight c_V of the value loss
    entropy_bonus: Schedule = Schedule(start=0.01)  # weight c_H of the entropy
    normalise_advantage: bool = False  # to mean 0 and deviation 1 over the rollout
    log_std: float = 0.0  # initial log standard deviation of continuous actions
    sde_every: Positive | None = None  # steps that noise stays one function of the state (gSDE); null: new in each
    shared: bool = False  # one encoder (and memory) for policy and value
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 0.5  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    curiosity: CuriosityConfig | None = None  # bonus for what is new to the learner; null: none


class A2C(OnPolicy):
    """On-policy, any action space."""

    name = "a2c"
    Config = A2CConfig
    plain = True
    recurrent = "may"
    defaults = {"model": {"hidden": [64, 64], "activation": "tanh", "init": "orthogonal"}, "env": {"num": 8}}
    metrics = {
        "ac/loss": "total loss L",
        "ac/grad_norm": "norm of the gradient before clipping",
        "policy_loss": "policy-gradient loss −E[A log π]",
        "value_loss": "value loss",
        "entropy": "mean entropy of the policy, in nats",
        "explained_variance": "1 − Var(R − V) / Var(R): 1 is a perfect critic, 0 a constant one",
    } | CURIOSITY_METRICS

    def networks(self) -> dict[str, nn.Module]:
        c = self.config
        options = {"shared": c.shared, "log_std": c.log_std, "state_dependent": c.sde_every is not None}
        ac = ActorCritic(self.obs_spec, self.action_spec, self.model, **options)
        return {"ac": ac} | self.curiosity.networks()

    def optimisers(self) -> dict[str, Optimiser]:
        c = self.config
        limited = RMSprop(clip_norm=c.max_grad_norm, eps=1e-5, **c.grad.options)
        return {"ac": limited} | self.curiosity.optimisers(limited)

    def memory(self) -> Tree:
        return memory_spec(self.model, self.config.shared)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return s.ac.act(obs, state)

    def prepare(self, s: Any, b: Any) -> dict[str, Tree]:
        """Advantages of the rollout [T, B] as rows [N], or as sequences [T, B] for a memory."""
        c = self.config
        rows = self.curiosity.prepare(s, b, judged(b, s.ac.judge(b), c.gamma, c.lam), c.lam)
        if c.normalise_advantage:
            rows["advantage"] = normalise(rows["advantage"], rows["valid"])
        return as_rows(rows) if self.model.core is None else as_sequences(rows, b)

    def learn(self, learner: Learner, batch: dict[str, Tree], rng: np.random.Generator) -> Iterator[list[Outputs]]:
        yield learner.step(learner.prepare(batch))

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, spec = self.config, self.action_spec

        def loss(ac: Any) -> tuple[Tensor, dict[str, Tensor]]:
            params, value = ac.read(b)
            logp, entropy = joint_logp_entropy(spec, params, b.action, mask_of(b.obs))
            policy = mean_valid(-b.advantage * logp, b.valid)
            critic, bonus = mean_valid(squared(value - b.target), b.valid), mean_valid(entropy, b.valid)
            aux = {"policy_loss": policy, "value_loss": critic, "entropy": bonus}
            return policy + c.value_cost * critic - s.knob.entropy_bonus * bonus, aux

        metrics = s.minimise("ac", loss) | {"explained_variance": b.explained.mean()}
        return metrics | self.curiosity.update(s, b)
