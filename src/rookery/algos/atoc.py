"""Attentional communication, ATOC (Jiang & Lu 2018): members learn when it is worth to share what they think.

    h_i    = think(o_i)                          p_i = σ(attention(h_i)): i initiates a group of m members if p_i > ½
    h̃_j    = channel(h of the group)_j           an LSTM in both directions; the mean if j is in several groups, else 0
    μ_j    = act(h_j, h̃_j)
    L_μ    = −E[Q_j(x, μ_1, …, μ_G)]             so thoughts learn what helps the others
    Δ_i    = mean_{j in the group of i} Q_j(with it) − Q_j(without it)               all other groups as they are
    L_p    = −E[l_i log p_i + (1 − l_i) log(1 − p_i)],   l_i = ½ + ½ Δ_i / max |Δ|

and the rest is MADDPG, whose central critics judge what was communicated. While learning, groups are drawn with their
probabilities, so that a channel which nobody uses still gets better. Members that are not present neither speak nor
listen. Acting needs the thoughts of the whole group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from rookery.algos.base import Positive
from rookery.algos.maddpg import MADDPG, CentralConfig
from rookery.core.counting import largest_of
from rookery.core.team import PRESENT
from rookery.core.tree import Tree, tree_map
from rookery.equations.value import mean_valid
from rookery.nets.teams import Communicating, Thoughts


class ATOCConfig(CentralConfig):
    """Options of ATOC."""

    name: Literal["atoc"] = "atoc"  # of the algorithm
    group: Positive = 3  # m: members of a group, with the one that initiates it
    channel: Positive = 32  # size of the channel's memory, in each direction
    shared: bool = True  # one policy and one critic for all members, told who each of them is; false: one for each


class ATOC(MADDPG):
    """Off-policy, for teams whose members act continuously, or choose."""

    name = "atoc"
    Config = ATOCConfig
    own_rewards = False  # a group is worth what all of its members gain
    plain = True
    metrics = MADDPG.metrics | {
        "policy/loss": "policy loss L_μ, what logits cost, and the attention's loss",
        "attention_loss": "loss L_p of the attention",
        "initiates": "share of members that would initiate a group",
        "gain": "mean Δ: how much more the critics expect of a group than of its silence",
    }

    def policy(self) -> nn.Module:
        c, bound = self.config, not self.chooses
        options = {"size": c.group, "channel": c.channel, "shared": c.shared, "bound": bound}
        return Communicating(self.team, self.model, self.width, **options)

    def policy_loss(self, s: Any, b: Any, taken: Tensor) -> Callable[[Any], Any]:
        there, uniform = b.obs[PRESENT], self.draws(s, b)
        thoughts = s.policy.think(b.obs)
        open_ = s.uniform(*there.shape) < thoughts.initiates.sigmoid()
        gain = self._gain(s, b.obs, thoughts, open_)
        label = 0.5 + 0.5 * gain / largest_of(torch.where(there.bool(), gain, 0.0).abs()).clamp(min=1e-8)

        def loss(policy: Any) -> tuple[Tensor, dict[str, Tensor]]:
            now = policy.think(b.obs)
            out = policy.act(now, open_)
            q = self.judged(s.critic, b.obs, self.acted(out, uniform, b.obs))
            wrong = binary_cross_entropy_with_logits(now.initiates, label.detach(), reduction="none")
            attention = mean_valid(wrong, there)
            numbers = {"initiates": (now.initiates > 0.0).float(), "gain": gain}
            aux = {"attention_loss": attention} | {key: mean_valid(x, there) for key, x in numbers.items()}
            return self.logit_cost(out, there) - mean_valid(q, there) + attention, aux

        return loss

    def _gain(self, s: Any, obs: Tree, thoughts: Thoughts, open_: Tensor) -> Tensor:
        """Δ [N, G]: case by case of a member that initiates a group, or does not."""
        cases, rows = open_.shape[-1], len(open_)
        wide = lambda x: x.unsqueeze(1).expand(rows, cases, *x.shape[1:])  # noqa: E731
        seen, known = tree_map(wide, obs), Thoughts(*(wide(x) for x in thoughts))
        itself = torch.eye(cases, device=open_.device).bool()
        q = [
            self.judged(s.critic, seen, self.usual(s.policy.act(known, gates), seen))
            for gates in (wide(open_) | itself, wide(open_) & ~itself)
        ]
        group = thoughts.group.float()
        return ((q[0] - q[1]) * group).sum(-1) / group.sum(-1).clamp(min=1.0)
