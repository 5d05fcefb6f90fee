"""Implicit quantile networks (Dabney 2018b): the quantile function of the return itself, Z_τ(s, a) for any τ in [0, 1].

    a(s)  = argmax_a mean_k Z_{β(τ̃_k)}(s, a),      τ̃_k = (2 k + 1) / 2 K      β: attitude to risk; the paper draws τ̃
    a*    = a(s_{t+k}) of the target network       double: of the online network
    y_j   = R + γ^k (1 − terminated) Z'_{τ'_j}(s_{t+k}, a*)                      τ'_j ~ U(0, 1), R: sum of k ≤ n rewards
    l     = Σ_i mean_j |τ_i − 1{y_j < Z_{τ_i}}| huber_κ(y_j − Z_{τ_i}(s, a)) / κ  τ_i ~ U(0, 1)       eq. 3
    L     = mean w l,     priority = l

Greedy acting is risk-sensitive as well: the distortion is part of the policy. β by `risk` and its parameter `risk_eta`:

    neutral  τ
    cpw      τ^η / (τ^η + (1 − τ)^η)^(1/η)         η = 0.71 as people weigh probabilities
    cvar     η τ                                   the mean of the worst share η
    wang     Φ(Φ⁻¹(τ) + η)                         η < 0 avoids risk, η > 0 seeks it
    pow      1 − (1 − τ)^(1/(1 + |η|)) for η < 0, which avoids risk; τ^(1/(1 + |η|)) for η > 0
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from rookery.acting.rules import Rule
from rookery.algos.base import Algorithm, Positive
from rookery.algos.qlearning import QLearningConfig, one_kind_of_priority
from rookery.core.tree import Tree
from rookery.equations.distributional import Risk, distort, midpoints, moved, pick_row, quantile_loss, quantile_results
from rookery.equations.value import greedy_action
from rookery.learning.optim import Adam, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets.distributional import QuantileFunction


class IQNConfig(QLearningConfig):
    """Options of IQN."""

    name: Literal["iqn"] = "iqn"  # of the algorithm
    double: bool = False  # choose the next action with the online network, judge it with the target
    samples: Annotated[int, Field(ge=1, le=10_000)] = 64  # τ drawn per sampled step
    target_samples: Annotated[int, Field(ge=1, le=10_000)] = 64  # τ' drawn for its target
    acting_samples: Annotated[int, Field(ge=1, le=10_000)] = 32  # K: τ̃ that choosing an action takes the mean over
    cosines: Positive = 64  # n: features of a fraction
    kappa: Annotated[float, Field(gt=0)] = 1.0  # κ: error from which the loss is linear
    risk: Risk = "neutral"  # β: attitude to risk of the policy
    risk_eta: float | None = None  # η of β; null: 0.71 for cpw, 0.25 for cvar, −0.75 for wang, −2 for pow

    @property
    def eta(self) -> float:
        """η, given or usual."""
        return ETA.get(self.risk, 0.0) if self.risk_eta is None else self.risk_eta

    @model_validator(mode="after")
    def _eta_fits(self) -> Self:
        eta, wanted = self.risk_eta, {"cvar": "0 < η ≤ 1", "cpw": "η > 0"}.get(self.risk, "")
        if eta is not None and self.risk == "neutral":
            raise ValueError(f"algo.risk_eta={eta:g} would be ignored: algo.risk=neutral has no parameter")
        if eta is not None and ((wanted and eta <= 0) or (self.risk == "cvar" and eta > 1)):
            raise ValueError(f"algo.risk_eta={eta:g}: algo.risk={self.risk} needs {wanted}")
        return self


ETA = {"cpw": 0.71, "cvar": 0.25, "wang": -0.75, "pow": -2.0}  # the paper's


class IQN(Algorithm):
    """Off-policy, discrete and multi-discrete actions."""

    name = "iqn"
    Config = IQNConfig
    store_kind = "replay"
    actions = ("discrete", "multi_discrete")
    plain = True
    targets = {"q_target": "q"}
    defaults = {"model": {"hidden": [128, 128], "activation": "relu"}}
    metrics = {
        "q/loss": "mean weighted quantile loss",
        "q/grad_norm": "norm of the gradient before clipping",
        "q_mean": "mean quantile Z_τ(s, a) of the sampled actions",
        "target_mean": "mean of the target quantiles y",
        "td_abs": "mean absolute difference of the means of y and Z_τ(s, a)",
    }

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        return one_kind_of_priority(config)

    def networks(self) -> dict[str, nn.Module]:
        c, actions = self.config, self.choices.actions
        return {"q": QuantileFunction(self.obs_spec, actions, c.cosines, self.model, c.dueling, c.noisy)}

    def optimisers(self) -> dict[str, Optimiser]:
        return {"q": Adam(clip_norm=self.config.max_grad_norm, **self.config.grad.options)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return self.choices.rule(self.config.epsilon_spread, column, columns)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return {"q": self._risky(s.q, s.q.features(obs))}, state

    def _risky(self, q: Any, features: Tensor) -> Tensor:
        """mean_k Z_{β(τ̃_k)}(s, ·) [..., A]."""
        c = self.config
        return q.quantiles(features, distort(midpoints(c.acting_samples, features.device), c.risk, c.eta)).mean(-1)

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, choices, rows = self.config, self.choices, len(b.reward)
        reward, discount, weight = choices.each(b.reward, b.discount, b.weight)
        tau, tau_target = s.uniform(rows, c.samples), s.uniform(rows, c.target_samples)
        judge = s.q_target
        after = judge.features(b.next_obs)
        chooser = self._risky(s.q, s.q.features(b.next_obs)) if c.double else self._risky(judge, after)
        best = greedy_action(chooser, choices.mask(b.next_obs))
        target = moved(pick_row(judge.quantiles(after, tau_target), best), reward, discount)

        def loss(q: Any) -> tuple[Tensor, dict[str, Tensor]]:
            return quantile_loss(pick_row(q(b.obs, tau), b.action), target, choices.apart(tau), weight, c.kappa)

        out = s.minimise("q", loss)
        results = quantile_results(out, target)
        return results | {"priority": choices.together(results["priority"])}
