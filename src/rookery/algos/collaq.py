"""Collaborative Q-learning, CollaQ (Zhang 2020): what a member is worth alone, and what others add to it.

    Q_i(o_i, a)  = Q_alone(o_i^alone, a) + Q_collab(o_i, c_i, a)
    c_i          = Σ_k softmax_k(q(o_i) · k_k / √d) v_k              attention to the others
    L            = L_TD + α E[Q_collab(o_i^alone, 0, ·)²]            MARA: without others nothing is added

and the rest is QMIX of these Q_i (`mixing`). What concerns others is found in one of two ways:

    others = []                   o_i^alone = o_i, and the others are the *other members that are present*: each hears
                                  what an encoder makes of what they see. So members communicate, also when they act
    others = [[start, stop], …]   numbers of o_i that describe others, a slice for each of them, as in the paper's
                                  tasks: o_i^alone has zeros there, and each acts by what it sees alone
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from torch import nn

from rookery.algos.base import Positive
from rookery.algos.mixing import Mixing, MixingConfig
from rookery.algos.teams import world_problem
from rookery.core.tree import Tree
from rookery.nets.teams import Monotone, Together, team_memory


class CollaQConfig(MixingConfig):
    """Options of CollaQ."""

    name: Literal["collaq"] = "collaq"  # of the algorithm
    others: tuple[
        tuple[int, int], ...
    ] = ()  # [start, stop] of what describes others in an observation; []: members talk
    attention: Positive = 32  # d: size of queries, keys and values
    mara: Annotated[float, Field(ge=0)] = 1.0  # α: weight of the loss that holds Q_collab without others at 0
    embed: Positive = 32  # width of the mixer
    hyper: Positive = 64  # hidden width of the networks that make its weights


class CollaQ(Mixing):
    """Off-policy, for teams whose members choose."""

    name = "collaq"
    Config = CollaQConfig
    plain = True
    metrics = Mixing.metrics | {"team/mara": "mean squared Q_collab of members without others"}

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        return super().rules(config) + world_problem(config)

    def mixer(self) -> nn.Module:
        c, team = self.config, self.team
        return Monotone(team.members, team.world_size, c.embed, c.hyper)

    def networks(self) -> dict[str, nn.Module]:
        return {"team": Together(self.team, self.model, self.mixer(), self.config)}

    def memory(self) -> Tree:
        own = team_memory(self.team, self.model)
        return None if own is None else {"alone": own, "collab": own}
