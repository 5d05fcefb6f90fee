"""Munchausen DQN (Vieillard 2020): the reward is raised by the scaled log-policy, and the bootstrap is soft.

    π(·|s) = softmax(Q'(s, ·) / τ)                                                     over the legal actions
    y      = R + α [τ log π(a|s)]_{l₀}^0 + γ^k (1 − terminated) τ log Σ_a' exp(Q'(s', a') / τ)      eq. 2
    L      = mean_i w_i huber(y_i − Q(s_i, a_i)),     priority = |y − Q(s, a)|

R is the sum of k ≤ n rewards; with n > 1 only the first of them is raised. τ log Σ exp(Q' / τ) is
Σ_a' π(a'|s') (Q'(s', a') − τ log π(a'|s')), without its cancellations. α = 0 leaves soft DQN, and τ → 0 then DQN.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

from rookery.acting.rules import Rule
from rookery.algos.base import Algorithm, Share
from rookery.algos.qlearning import QLearningConfig
from rookery.core.tree import Tree
from rookery.equations.td import td_loss
from rookery.equations.value import munchausen_bonus, soft_value
from rookery.learning.optim import Adam, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import QNetwork


class MDQNConfig(QLearningConfig):
    """Options of Munchausen DQN."""

    name: Literal["mdqn"] = "mdqn"  # of the algorithm
    alpha: Share = 0.9  # α: weight of the log-policy in the reward
    temperature: Annotated[float, Field(gt=0)] = 0.03  # τ of the policy, in units of Q
    floor: Annotated[float, Field(le=0)] = -1.0  # l₀: least value of τ log π that is added


class MDQN(Algorithm):
    """Off-policy, discrete and multi-discrete actions."""

    name = "mdqn"
    Config = MDQNConfig
    store_kind = "replay"
    actions = ("discrete", "multi_discrete")
    plain = True
    targets = {"q_target": "q"}
    defaults = {"model": {"hidden": [128, 128], "activation": "relu"}}
    metrics = {
        "q/loss": "mean weighted loss of the TD errors",
        "q/grad_norm": "norm of the gradient before clipping",
        "q_mean": "mean Q(s, a) of the sampled actions",
        "target_mean": "mean target y",
        "td_abs": "mean absolute TD error",
        "bonus_mean": "mean of what the log-policy adds to the reward, at most 0",
    }

    def networks(self) -> dict[str, nn.Module]:
        c = self.config
        return {"q": QNetwork(self.obs_spec, self.choices.actions, self.model, c.dueling, c.noisy)}

    def optimisers(self) -> dict[str, Optimiser]:
        return {"q": Adam(clip_norm=self.config.max_grad_norm, **self.config.grad.options)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return self.choices.rule(self.config.epsilon_spread, column, columns)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return {"q": s.q(obs)}, state

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, choices, judge = self.config, self.choices, s.q_target
        reward, discount, weight = choices.each(b.reward, b.discount, b.weight)
        bonus = c.alpha * munchausen_bonus(judge(b.obs), b.action, c.temperature, c.floor, choices.mask(b.obs))
        value = soft_value(judge(b.next_obs), c.temperature, choices.mask(b.next_obs))
        y = reward + bonus + discount * value
        out = s.minimise("q", lambda q: td_loss(q(b.obs), b.action, y, weight))
        size = out["td"].abs()
        return {
            "priority": choices.together(size),
            "td_abs": size.mean(),
            "q_mean": out["q"].mean(),
            "target_mean": y.mean(),
            "bonus_mean": bonus.mean(),
        }
