"""Quantile regression DQN (Dabney 2018a):
the return's distribution by its quantiles at fixed fractions, on no fixed support.

    Q(s, a) = mean_i θ_i(s, a)
    a*      = argmax_a Q'(s_{t+k}, a)                                     double: argmax_a Q(s_{t+k}, a)
    y_j     = R + γ^k (1 − terminated) θ'_j(s_{t+k}, a*)                  R: sum of k ≤ n rewards
    τ_i     = (2 i + 1) / 2 N
    l       = Σ_i mean_j |τ_i − 1{y_j < θ_i}| huber_κ(y_j − θ_i(s, a)) / κ    eq. 10
    L       = mean w l,     priority = l

Acting is ε-greedy in Q; a noisy head explores by itself. Double choice, dueling heads and n-step returns are options.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

from rookery.acting.rules import Rule
from rookery.algos.base import Algorithm, Positive
from rookery.algos.qlearning import QLearningConfig, one_kind_of_priority
from rookery.core.tree import Tree
from rookery.equations.distributional import midpoints, moved, pick_row, quantile_loss, quantile_results
from rookery.equations.value import greedy_action
from rookery.learning.optim import Adam, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets.distributional import AtomNetwork


class QRDQNConfig(QLearningConfig):
    """Options of QR-DQN."""

    name: Literal["qrdqn"] = "qrdqn"  # of the algorithm
    double: bool = False  # choose the next action with the online network, judge it with the target
    quantiles: Positive = 200  # N per action
    kappa: Annotated[float, Field(gt=0)] = 1.0  # κ: error from which the loss is linear


class QRDQN(Algorithm):
    """Off-policy, discrete and multi-discrete actions."""

    name = "qrdqn"
    Config = QRDQNConfig
    store_kind = "replay"
    actions = ("discrete", "multi_discrete")
    plain = True
    targets = {"q_target": "q"}
    defaults = {"model": {"hidden": [128, 128], "activation": "relu"}}
    metrics = {
        "q/loss": "mean weighted quantile loss",
        "q/grad_norm": "norm of the gradient before clipping",
        "q_mean": "mean Q(s, a) of the sampled actions",
        "target_mean": "mean of the target quantiles y",
        "td_abs": "mean absolute difference of the means of y and θ(s, a)",
    }

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        return one_kind_of_priority(config)

    def networks(self) -> dict[str, nn.Module]:
        c = self.config
        return {"q": AtomNetwork(self.obs_spec, self.choices.actions, c.quantiles, self.model, c.dueling, c.noisy)}

    def optimisers(self) -> dict[str, Optimiser]:
        return {"q": Adam(clip_norm=self.config.max_grad_norm, **self.config.grad.options)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return self.choices.rule(self.config.epsilon_spread, column, columns)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return {"q": s.q(obs).mean(-1)}, state

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, choices = self.config, self.choices
        reward, discount, weight = choices.each(b.reward, b.discount, b.weight)
        after = s.q_target(b.next_obs)  # [B, A, N]
        chooser = s.q(b.next_obs) if c.double else after
        best = greedy_action(chooser.mean(-1), choices.mask(b.next_obs))
        target = moved(pick_row(after, best), reward, discount)
        tau = midpoints(c.quantiles, b.reward.device)

        def loss(q: Any) -> tuple[Tensor, dict[str, Tensor]]:
            return quantile_loss(pick_row(q(b.obs), b.action), target, tau, weight, c.kappa)

        out = s.minimise("q", loss)
        results = quantile_results(out, target)
        return results | {"priority": choices.together(results["priority"])}
