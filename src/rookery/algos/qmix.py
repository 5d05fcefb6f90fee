"""QMIX (Rashid 2018): the value of a team grows with the value of each member, in a way that the world decides; and
weighted QMIX (Rashid 2020).

    Q_tot(s, a) = w₂(s)ᵀ elu(W₁(s)ᵀ q + b₁(s)) + b₂(s),   q_i = Q_i(o_i, a_i),   W₁, w₂ = |hyper(s)|
    ∂Q_tot/∂Q_i ≥ 0, so the members' own best actions are the team's

and the rest is Q-learning of Q_tot (`mixing`). Weighted: y comes from a value Q* that is mixed without that limit, and
rows in which the team did worse than it could count α < 1, so that Q_tot bends towards the best joint actions:

    y = R + γ^k (1 − terminated) Q*'(s', a*)        a*: the best of Q_tot;   L* = mean w ½ (y − Q*(s, a))²
    optimistic   ω = 1 if Q_tot(s, a) < y, else α
    central      ω = 1 if y > Q*(s, a*) or a = a*, else α
    L = mean w ω ½ (y − Q_tot)²
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from rookery.algos.base import Positive, Share
from rookery.algos.mixing import Mixing, MixingConfig
from rookery.algos.teams import world_problem
from rookery.core.team import PRESENT
from rookery.core.tree import Tree
from rookery.equations.value import greedy_action, pick, squared
from rookery.learning.optim import Optimiser
from rookery.nets.teams import Free, Monotone, TeamQ


class QMIXConfig(MixingConfig):
    """Options of QMIX."""

    name: Literal["qmix"] = "qmix"  # of the algorithm
    embed: Positive = 32  # width of the mixer
    hyper: Positive = 64  # hidden width of the networks that make its weights
    weighting: Literal["none", "optimistic", "central"] = "none"  # which rows count less (weighted QMIX)
    alpha: Share = 0.5  # what they count


class QMIX(Mixing):
    """Off-policy, for teams whose members choose."""

    name = "qmix"
    Config = QMIXConfig
    plain = True

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        return super().rules(config) + world_problem(config)

    def mixer(self) -> nn.Module:
        c, team = self.config, self.team
        return Monotone(team.members, team.world_size, c.embed, c.hyper)

    def __init__(self, config: Any, obs_spec: Tree, action_spec: Tree, model: Any):
        super().__init__(config, obs_spec, action_spec, model)
        if config.weighting != "none":
            self.targets, self.judge = self.targets | {"central_target": "central"}, "central_target"

    def networks(self) -> dict[str, nn.Module]:
        c, team, own = self.config, self.team, super().networks()
        if c.weighting == "none":
            return own
        return own | {"central": TeamQ(team, self.model, Free(team.members, team.world_size, c.hyper), shared=c.shared)}

    def optimisers(self) -> dict[str, Optimiser]:
        own = super().optimisers()
        return own if self.config.weighting == "none" else own | {"central": own["team"]}

    def emphasis(self, s: Any, rows: Any, q: Tensor, y: Tensor, td: Tensor) -> Any:
        c = self.config
        if c.weighting == "none":
            return 1.0
        counts = td > 0.0
        if c.weighting == "central":
            best = greedy_action(q, self.choices.mask(rows.obs))
            same = ((best == rows.action) | ~rows.obs[PRESENT].bool()).all(-1)
            counts = same | (y > self._central(s.central, rows, best))
        return torch.where(counts, 1.0, c.alpha)

    def further(self, s: Any, b: Any, rows: Any, y: Tensor) -> None:
        if self.config.weighting != "none":
            loss = lambda net: squared(y - self._central(net, rows, rows.action))  # noqa: E731
            s.minimise("central", lambda net: self.mean(b.weight * loss(net), rows))

    def _central(self, net: Any, rows: Any, action: Tensor) -> Tensor:
        """Q*(s, a) of the rows."""
        if self.model.core is None:
            return net.mix(pick(net(rows.obs), action), rows.obs)
        q, _ = net.unroll(rows.obs, rows.start(net), rows.first, rows.valid)
        return net.mix(pick(q, action), rows.obs)
