"""Deep Q-learning (Mnih 2015), with double Q (van Hasselt 2016), dueling heads (Wang 2016), n-step returns and noisy
heads (Fortunato 2018) as options.

    R     = Σ_{i<k} γ^i r_{t+i}                    k ≤ n steps really taken: the episode may end first
    y     = R + γ^k (1 − terminated) Q'(s_{t+k}, a*)
    a*    = argmax_a Q(s_{t+k}, a)                 double;   argmax_a Q'(s_{t+k}, a) otherwise
    L     = mean_i w_i huber(y_i − Q(s_i, a_i))
    Q'    ← (1 − τ) Q' + τ Q                       every `target_every` updates

A truncated step bootstraps from its true final observation. Acting is ε-greedy; with a noisy head ε is 0
unless given, and the noise on its weights, drawn anew before every round and every update, does the exploring.

Several choices at once (multi-discrete) have a head each, and L is the mean over them; see `multi_discrete`.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from torch import Tensor, nn

from rookery.acting.rules import Rule
from rookery.algos.base import Algorithm
from rookery.algos.qlearning import QLearningConfig
from rookery.core.tree import Tree
from rookery.equations.td import td_loss
from rookery.equations.value import double_q, max_q
from rookery.learning.optim import Adam, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import QNetwork


class DQNConfig(QLearningConfig):
    """Options of DQN."""

    name: Literal["dqn"] = "dqn"  # of the algorithm
    double: bool = True  # choose the next action with the online network, judge it with the target
    loss: Literal["huber", "squared"] = "huber"  # of the TD error


class DQN(Algorithm):
    """Off-policy, discrete and multi-discrete actions."""

    name = "dqn"
    Config = DQNConfig
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
        c, mask = self.config, self.choices.mask(b.next_obs)
        reward, discount, weight = self.choices.each(b.reward, b.discount, b.weight)
        q_next = s.q_target(b.next_obs)
        value = double_q(s.q(b.next_obs), q_next, mask) if c.double else max_q(q_next, mask)
        y = reward + discount * value
        delta = 1.0 if c.loss == "huber" else math.inf
        out = s.minimise("q", lambda q: td_loss(q(b.obs), b.action, y, weight, delta))
        size = out["td"].abs()
        return {
            "priority": self.choices.together(size),
            "td_abs": size.mean(),
            "q_mean": out["q"].mean(),
            "target_mean": y.mean(),
        }
