"""Fully parameterised quantile function, FQF (Yang 2019):
IQN's quantile function, read at fractions that are learnt as well.

    p      = softmax(P(ψ(s))),     τ_i = Σ_{j<i} p_j,     τ̂_i = (τ_i + τ_{i+1}) / 2
    Q(s, a) = Σ_i (τ_{i+1} − τ_i) Z_{τ̂_i}(s, a)
    a*     = argmax_a Q'(s_{t+k}, a)                              double: argmax_a Q(s_{t+k}, a); fractions of s_{t+k}
    y_j    = R + γ^k (1 − terminated) Z'_{τ̂_j}(s_{t+k}, a*)       fractions of s; R: sum of k ≤ n rewards
    l      = Σ_i mean_j |τ̂_i − 1{y_j < Z_{τ̂_i}}| huber_κ(y_j − Z_{τ̂_i}(s, a)) / κ
    L      = mean w l,     priority = l
    ∂W₁/∂τ_i = 2 Z_{τ_i} − Z_{τ̂_i} − Z_{τ̂_{i−1}}                 eq. 9, for 0 < i < N: the gradient of P itself
    L_P    = mean w Σ_i τ_i ⌊∂W₁/∂τ_i⌋ − c mean H(p)              ⌊·⌋: as a constant

ψ is the encoder of Q, to which P gives no gradient. P follows slowly, by RMSprop at a rate far below the other one:
fractions that move make targets move.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

from rookery.acting.rules import Rule
from rookery.algos.base import Algorithm, Positive
from rookery.algos.qlearning import QLearningConfig, one_kind_of_priority
from rookery.core.schedule import Schedule
from rookery.core.tree import Tree
from rookery.equations.distributional import fraction_gradient, moved, pick_row, quantile_loss, quantile_results
from rookery.equations.value import greedy_action, weighted_mean
from rookery.learning.optim import Adam, Optimiser, RMSprop
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets.distributional import Fractions, QuantileFunction


class FQFConfig(QLearningConfig):
    """Options of FQF."""

    name: Literal["fqf"] = "fqf"  # of the algorithm
    double: bool = False  # choose the next action with the online network, judge it with the target
    fractions: Annotated[int, Field(ge=2)] = 32  # N: quantiles per action
    cosines: Positive = 64  # n: features of a fraction
    kappa: Annotated[float, Field(gt=0)] = 1.0  # κ: error from which the loss is linear
    fraction_lr: Schedule = Schedule(start=2.5e-9)  # learning rate of P (RMSprop)
    entropy_bonus: Schedule = Schedule(start=0.0)  # c: weight of the entropy of p, which keeps fractions apart


class FQF(Algorithm):
    """Off-policy, discrete and multi-discrete actions."""

    name = "fqf"
    Config = FQFConfig
    store_kind = "replay"
    actions = ("discrete", "multi_discrete")
    plain = True
    targets = {"q_target": "q"}
    defaults = {"model": {"hidden": [128, 128], "activation": "relu"}}
    metrics = {
        "q/loss": "mean weighted quantile loss",
        "q/grad_norm": "norm of its gradient before clipping",
        "fraction/loss": "L_P: of meaning only by its gradient",
        "fraction/grad_norm": "norm of the gradient of P",
        "q_mean": "mean quantile Z(s, a) of the sampled actions",
        "target_mean": "mean of the target quantiles y",
        "td_abs": "mean absolute difference of the means of y and Z(s, a)",
        "fraction_entropy": "mean entropy of p in nats: log N if all fractions are equal",
    }

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        return one_kind_of_priority(config)

    def networks(self) -> dict[str, nn.Module]:
        c, actions = self.config, self.choices.actions
        q = QuantileFunction(self.obs_spec, actions, c.cosines, self.model, c.dueling, c.noisy)
        return {"q": q, "fraction": Fractions(q.encoder.out_features, c.fractions)}

    def optimisers(self) -> dict[str, Optimiser]:
        limited = Adam(clip_norm=self.config.max_grad_norm, **self.config.grad.options)
        return {"q": limited, "fraction": RMSprop(lr="fraction_lr", alpha=0.95, eps=1e-5, fixed=True)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return self.choices.rule(self.config.epsilon_spread, column, columns)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        seen = s.q.features(obs)
        return {"q": self._values(s.q, seen, *s.fraction(seen)[1:])}, state

    def _values(self, q: Any, features: Tensor, tau: Tensor, middle: Tensor) -> Tensor:
        """Q(s, ·) [..., A]."""
        return (self.choices.apart(tau.diff()).unsqueeze(-2) * q.quantiles(features, middle)).sum(-1)

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, choices, judge, online = self.config, self.choices, s.q_target, s.q
        reward, discount, weight = choices.each(b.reward, b.discount, b.weight)
        seen, seen_next, after = online.features(b.obs), online.features(b.next_obs), judge.features(b.next_obs)
        _, tau, middle = s.fraction(seen)
        chooser, features = (online, seen_next) if c.double else (judge, after)
        best = greedy_action(self._values(chooser, features, *s.fraction(seen_next)[1:]), choices.mask(b.next_obs))
        target = moved(pick_row(judge.quantiles(after, middle), best), reward, discount)
        inner = pick_row(online.quantiles(seen, tau[..., 1:-1]), b.action)
        slope = fraction_gradient(inner, pick_row(online.quantiles(seen, middle), b.action))  # before Q learns

        def loss(q: Any) -> tuple[Tensor, dict[str, Tensor]]:
            return quantile_loss(pick_row(q(b.obs, middle), b.action), target, choices.apart(middle), weight, c.kappa)

        def fraction_loss(fraction: Any) -> tuple[Tensor, Tensor]:
            log_p, proposed, _ = fraction(seen)
            entropy = -(log_p.exp() * log_p).sum(-1)
            distance = choices.together((choices.apart(proposed[..., 1:-1]) * slope).sum(-1))
            return weighted_mean(distance, b.weight) - s.knob.entropy_bonus * entropy.mean(), entropy

        out = s.minimise("q", loss)
        entropy = s.minimise("fraction", fraction_loss)
        results = quantile_results(out, target) | {"fraction_entropy": entropy.mean()}
        return results | {"priority": choices.together(results["priority"])}
