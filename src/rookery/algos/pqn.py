"""Parallelised Q-network, PQN (Gallici 2024):
Q-learning on what many envs have just done, without replay and target network.

    V(s)  = max_a Q(s, a)
    G_t   = r_t + γ (1 − terminated_t) ((1 − λ) V(s'_t) + λ G_{t+1})        Q(λ) of Peng 1996; s' the true successor
                                                                            an ended and the last step take V(s'_t)
    L     = E[½ (G − Q(s, a))²]

G is computed once per rollout with the network that acted, then learnt in `epochs` passes over shuffled minibatches.
What replaces the target network is layer normalisation (`model.layer_norm`, on by default here), which bounds how far Q
can run away. Means are over valid rows. Acting is ε-greedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from rookery.acting.rules import Rule
from rookery.algos.base import AlgoConfig, Algorithm, Positive, Share
from rookery.core.schedule import Schedule
from rookery.core.tree import Tree
from rookery.equations.returns import lambda_return, successor_values
from rookery.equations.rollouts import as_rows, shuffled
from rookery.equations.value import max_q, mean_valid, pick, squared
from rookery.learning.learner import Learner, Outputs
from rookery.learning.optim import Adam, GradConfig, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import QNetwork


class PQNConfig(AlgoConfig):
    """Options of PQN."""

    name: Literal["pqn"] = "pqn"  # of the algorithm
    gamma: Share = 0.99  # discount per env step
    lam: Share = 0.65  # λ: 0 is the one-step target, 1 the return to the end of the rollout
    lr: Schedule = Schedule(start=2.5e-4)  # learning rate of Adam
    rollout: Positive = 32  # env steps per env between updates
    epochs: Positive = 2  # passes over a rollout
    minibatches: Positive = 8  # equal parts of a rollout per epoch
    dueling: bool = False  # Q = V + A − mean A
    epsilon: Schedule = Schedule(kind="linear", start=1.0, end=0.05, steps=50_000)  # share of random actions
    epsilon_spread: Annotated[float, Field(ge=0)] = 0.0  # ε of column i is ε^(1 + spread · i/(N−1))
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 10.0  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients

    shares = ("epsilon",)


class PQN(Algorithm):
    """Values learnt from rollouts, discrete and multi-discrete actions."""

    name = "pqn"
    Config = PQNConfig
    store_kind = "rollout"
    actions = ("discrete", "multi_discrete")
    plain = True
    defaults = {"model": {"hidden": [128, 128], "activation": "relu", "layer_norm": True}, "env": {"num": 32}}
    metrics = {
        "q/loss": "mean squared error of Q, halved",
        "q/grad_norm": "norm of the gradient before clipping",
        "q_mean": "mean Q(s, a) of the actions taken",
        "target_mean": "mean target G",
        "td_abs": "mean absolute difference of G and Q(s, a)",
    }

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        c, rows = config.algo, config.env.num * config.pool.workers * config.algo.rollout
        if rows % c.minibatches == 0:
            return []
        return [
            f"algo.minibatches={c.minibatches} must divide env.num × pool.workers × algo.rollout ({c.rollout}) = "
            f"{rows} into equal parts. Change algo.minibatches or algo.rollout."
        ]

    def networks(self) -> dict[str, nn.Module]:
        return {"q": QNetwork(self.obs_spec, self.choices.actions, self.model, self.config.dueling)}

    def optimisers(self) -> dict[str, Optimiser]:
        return {"q": Adam(clip_norm=self.config.max_grad_norm, **self.config.grad.options)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return self.choices.rule(self.config.epsilon_spread, column, columns)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return {"q": s.q(obs)}, state

    def prepare(self, s: Any, b: Any) -> dict[str, Tree]:
        """Targets of the whole rollout [T, B], then its rows [N]."""
        c, done = self.config, b.terminated | b.truncated
        seen = (max_q(s.q(obs), self.choices.mask(obs)) for obs in (b.obs, b.last_obs, b.final_obs))

        def returns(value: Tensor, last: Tensor, final: Tensor) -> Tensor:
            following = successor_values(value, last, final, b.final_at, b.valid)
            return lambda_return(b.reward, following, b.terminated, done, c.gamma, c.lam, b.valid)

        target = self.choices.by_part(returns, *seen)
        rows = {"obs": b.obs, "action": b.action, "target": target, "valid": b.valid.float()}
        return as_rows(rows)

    def learn(self, learner: Learner, batch: dict[str, Tree], rng: np.random.Generator) -> Iterator[list[Outputs]]:
        c, rows = self.config, learner.prepare(batch)
        for _ in range(c.epochs):
            for part in shuffled(rows, c.minibatches, rng):
                yield learner.step(part)

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        together = self.choices.together

        def loss(q: Any) -> tuple[Tensor, dict[str, Tensor]]:
            q_sa = pick(q(b.obs), b.action)
            td = b.target - q_sa
            numbers = {"q_mean": mean_valid(together(q_sa), b.valid), "td_abs": mean_valid(together(td.abs()), b.valid)}
            return mean_valid(together(squared(td)), b.valid), numbers

        return s.minimise("q", loss) | {"target_mean": mean_valid(together(b.target), b.valid)}
