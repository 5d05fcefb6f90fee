"""Categorical DQN, C51 (Bellemare 2017): the distribution of the return on fixed atoms, learnt by cross-entropy. Double
choice, dueling heads, n-step returns and noisy heads are options; all of them with prioritised replay are Rainbow.

    z_i    = v_min + i (v_max − v_min) / (atoms − 1)
    Q(s, a) = Σ_i z_i p_i(s, a),                          p = softmax of the network's numbers
    a*     = argmax_a Q'(s_{t+k}, a)                      double: argmax_a Q(s_{t+k}, a)
    m      = projection of R + γ^k (1 − terminated) z with p'(s_{t+k}, a*) on the atoms   eq. 7; R: sum of k ≤ n rewards
    L      = mean_i w_i D_KL(m_i ‖ p(s_i, a_i))           its gradient is that of the cross-entropy
    priority = D_KL(m ‖ p(s, a))                          Hessel 2018, section 4

Returns outside [v_min, v_max] cannot be represented: the discounted return of the task must fit.
The metric `edge_mass` says how much of the targets lies on the two outermost atoms.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from rookery.acting.rules import Rule
from rookery.algos.base import Algorithm
from rookery.algos.qlearning import QLearningConfig, one_kind_of_priority
from rookery.core.tree import Tree
from rookery.equations.distributional import atoms, kl_divergence, pick_row, project
from rookery.equations.value import greedy_action, weighted_mean
from rookery.learning.optim import Adam, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets.distributional import AtomNetwork


class CategoricalConfig(QLearningConfig):
    """What C51 and Rainbow can be told."""

    double: bool = False  # choose the next action with the online network, judge it with the target
    atoms: Annotated[int, Field(ge=2)] = 51  # points of the support
    v_min: float = -10.0  # smallest discounted return that can be represented
    v_max: float = 10.0  # largest one

    @model_validator(mode="after")
    def _support_in_order(self) -> Self:
        if self.v_min >= self.v_max:
            raise ValueError(f"algo.v_min={self.v_min:g} must be below algo.v_max={self.v_max:g}")
        return self


class C51Config(CategoricalConfig):
    """Options of C51."""

    name: Literal["c51"] = "c51"  # of the algorithm


class C51(Algorithm):
    """Off-policy, discrete and multi-discrete actions."""

    name = "c51"
    Config: ClassVar[type[CategoricalConfig]] = C51Config
    store_kind = "replay"
    actions = ("discrete", "multi_discrete")
    plain = True
    targets = {"q_target": "q"}
    defaults: ClassVar[dict[str, Any]] = {"model": {"hidden": [128, 128], "activation": "relu"}}
    metrics = {
        "q/loss": "mean weighted divergence D_KL(m ‖ p)",
        "q/grad_norm": "norm of the gradient before clipping",
        "q_mean": "mean Q(s, a) of the sampled actions",
        "target_mean": "mean of the target distributions m",
        "edge_mass": "mean mass of m on the two outermost atoms: much of it means that [v_min, v_max] is too narrow",
    }

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        return one_kind_of_priority(config)

    def networks(self) -> dict[str, nn.Module]:
        c = self.config
        return {"q": AtomNetwork(self.obs_spec, self.choices.actions, c.atoms, self.model, c.dueling, c.noisy)}

    def optimisers(self) -> dict[str, Optimiser]:
        return {"q": Adam(clip_norm=self.config.max_grad_norm, **self.config.grad.options)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return self.choices.rule(self.config.epsilon_spread, column, columns)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return {"q": self._mean(s.q(obs).softmax(-1))}, state

    def _mean(self, probability: Tensor) -> Tensor:
        c = self.config
        return (probability * atoms(c.v_min, c.v_max, c.atoms, probability.device)).sum(-1)

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, choices = self.config, self.choices
        reward, discount, weight = choices.each(b.reward, b.discount, b.weight)
        p_next = s.q_target(b.next_obs).softmax(-1)  # [B, A, atoms]
        chooser = self._mean(s.q(b.next_obs).softmax(-1) if c.double else p_next)
        best = greedy_action(chooser, choices.mask(b.next_obs))
        target = project(pick_row(p_next, best), reward, discount, c.v_min, c.v_max)

        def loss(q: Any) -> tuple[Tensor, dict[str, Tensor]]:
            log_p = pick_row(q(b.obs), b.action).log_softmax(-1)
            divergence = kl_divergence(target, log_p)
            return weighted_mean(divergence, weight), {"divergence": divergence, "log_p": log_p}

        out = s.minimise("q", loss)
        return {
            "priority": choices.together(out["divergence"].clamp(min=0.0)),  # rounding may take it below
            "q_mean": self._mean(out["log_p"].exp()).mean(),
            "target_mean": self._mean(target).mean(),
            "edge_mass": (target[..., 0] + target[..., -1]).mean(),
        }
