"""Value-decomposition networks (Sunehag 2018): the value of a team is the sum of its members'.

    Q_tot(a) = Σ_i Q_i(o_i, a_i)            over the members that are present

and the rest is Q-learning of Q_tot (`mixing`). It needs no world, and it cannot say that one member's best action
depends on another's: in the two-step game of the QMIX paper it stays at 7 where 8 can be had.
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from rookery.algos.mixing import Mixing, MixingConfig
from rookery.nets.teams import Sum


class VDNConfig(MixingConfig):
    """Options of VDN."""

    name: Literal["vdn"] = "vdn"  # of the algorithm


class VDN(Mixing):
    """Off-policy, for teams whose members choose."""

    name = "vdn"
    Config = VDNConfig
    plain = True

    def mixer(self) -> nn.Module:
        return Sum()
