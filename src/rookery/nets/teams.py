"""Networks of teams (`core.team`): what members decide by, [..., G, …], and what becomes of it for the team as a whole.

    members     one network that all share and that is told who each of them is, or one for each
    sum         Q_tot = Σ_i Q_i                                                          (VDN, Sunehag 2018)
    monotone    Q_tot = w₂(s)ᵀ elu(W₁(s)ᵀ q + b₁(s)) + b₂(s),  W₁, w₂ ≥ 0: ∂Q_tot/∂Q_i ≥ 0   (QMIX, Rashid 2018)
    free        Q_tot = f(q, s), a perceptron: any function of them                      (WQMIX, Rashid 2020)

Whoever is not present counts 0, and keeps what it remembers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rookery.core.spec import Leaf
from rookery.core.team import AGENTS, PRESENT, WORLD, Team
from rookery.core.tree import Tree, leaves, tree_map
from rookery.nets.config import ModelConfig
from rookery.nets.cores import State, state_spec
from rookery.nets.heads import QNetwork
from rookery.nets.modules import linear, mlp


def team_memory(team: Team, model: ModelConfig) -> Tree:
    """What a team remembers: a state of every member, [G, …]; None without memory."""
    if model.core is None:
        return None
    lead = lambda leaf: Leaf(leaf.kind, (team.members, *leaf.shape), leaf.dtype)  # noqa: E731
    return tree_map(lead, state_spec(model.core))


def world_of(obs: Tree) -> Tensor:
    """The state of the env [..., S]; else all that members see, side by side, and who is present."""
    present = obs[PRESENT].float()
    if WORLD in obs:
        state = obs[WORLD].float()
        return state.flatten(present.dim() - 1) if state.dim() > present.dim() else state
    parts = [x.float() / 255.0 if x.dtype == torch.uint8 else x.float() for x in leaves(obs[AGENTS])]
    return torch.cat([*(x.flatten(present.dim() - 1) for x in parts), present], -1)


class Members(nn.Module):
    """A network for each member, or one that they share; `make` builds one from the spec of what it sees.

    With memory they are read by `step` and `unroll`, as a single `QNetwork` is; the states are [..., G, size].
    """

    plain = True  # core.plain

    def __init__(self, team: Team, make: Callable[[Tree], nn.Module], shared: bool):
        super().__init__()
        self.count, self.shared = team.members, shared
        who = Leaf("box", (team.members,), np.dtype(np.float32))
        spec = {"seen": team.obs, "who": who} if shared else team.obs
        self.networks = nn.ModuleList(make(spec) for _ in range(1 if shared else team.members))

    @property
    def _nets(self) -> list[Any]:
        return list(self.networks)

    def forward(self, obs: Tree) -> Tensor:
        if self.shared:
            return self.networks[0](self._seen(obs))
        lead = obs[PRESENT].dim() - 1
        return torch.stack([net(_at(obs[AGENTS], k, lead)) for k, net in enumerate(self.networks)], lead)

    def step(self, obs: Tree, state: State) -> tuple[Tensor, State]:
        """(results [..., G, …], next state); who is not present remembers what it did."""
        there = obs[PRESENT].bool().unsqueeze(-1)
        if self.shared:
            out, after = self._nets[0].step(self._seen(obs), state)
        else:
            lead = obs[PRESENT].dim() - 1
            seen = [(net, _at(obs[AGENTS], k, lead), _at(state, k, lead)) for k, net in enumerate(self._nets)]
            pairs = [net.step(mine, before) for net, mine, before in seen]
            out, after = (_stacked([pair[i] for pair in pairs], lead) for i in (0, 1))
        return out, tree_map(lambda new, old: torch.where(there, new, old), after, state)

    def unroll(self, obs: Tree, state: State, first: Tensor, valid: Tensor) -> tuple[Tensor, State]:
        """(results [T, B, G, …], states after each step [T, B, G, …]) from the state [B, G, …] before the first."""
        there = valid.bool().unsqueeze(-1) & obs[PRESENT].bool()
        starts = _starts(first.bool().unsqueeze(-1).expand_as(there), there)
        if not self.shared:
            parts = [
                net.unroll(_at(obs[AGENTS], k, 2), _at(state, k, 1), starts[..., k], there[..., k])
                for k, net in enumerate(self._nets)
            ]
            return _stacked([q for q, _ in parts], 2), _stacked([after for _, after in parts], 2)
        folded = tree_map(lambda x: x.flatten(1, 2), {"obs": self._seen(obs), "first": starts, "valid": there})
        before = tree_map(lambda x: x.flatten(0, 1), state)
        out, after = self._nets[0].unroll(folded["obs"], before, folded["first"], folded["valid"])
        unfold = lambda x: x.unflatten(1, there.shape[1:])  # noqa: E731
        return unfold(out), tree_map(unfold, after)

    def _seen(self, obs: Tree) -> Tree:
        present = obs[PRESENT]
        return {"seen": obs[AGENTS], "who": torch.eye(self.count, device=present.device).expand(*present.shape, -1)}


def _at(tree: Tree, k: int, axis: int) -> Tree:
    return tree_map(lambda x: x.select(axis, k), tree)


def _stacked(trees: list[Tree], axis: int) -> Tree:
    return tree_map(lambda *parts: torch.stack(parts, axis), *trees)


def _starts(first: Tensor, there: Tensor) -> Tensor:
    """Where a member's own episode begins [T, B, G]: at the team's start, or later, when it is present for the first
    time."""
    starts, pending = [], torch.zeros_like(first[0])
    for begins, present in zip(first.unbind(0), there.unbind(0)):
        pending = begins | pending
        starts.append(pending)
        pending = pending & ~present
    return torch.stack(starts)


class Sum(nn.Module):
    """Q_tot = Σ_i Q_i."""

    plain = True  # core.plain

    def forward(self, q: Tensor, world: Tensor) -> Tensor:
        return q.sum(-1)


class Monotone(nn.Module):
    """Q_tot grows with every Q_i: the weights are made from the world and not negative."""

    plain = True  # core.plain

    def __init__(self, members: int, world: int, embed: int, hidden: int):
        super().__init__()
        self.shape = (members, embed)
        self.weight_1, self.weight_2 = (mlp([world, hidden, n], "relu") for n in (members * embed, embed))
        self.bias_1, self.bias_2 = linear(world, embed), mlp([world, embed, 1], "relu")

    def forward(self, q: Tensor, world: Tensor) -> Tensor:
        weight = self.weight_1(world).abs().unflatten(-1, self.shape)
        hidden = nn.functional.elu((q.unsqueeze(-1) * weight).sum(-2) + self.bias_1(world))
        return (hidden * self.weight_2(world).abs()).sum(-1) + self.bias_2(world).squeeze(-1)


class Free(nn.Module):
    """Q_tot is any function of the Q_i and the world."""

    plain = True  # core.plain

    def __init__(self, members: int, world: int, hidden: int):
        super().__init__()
        self.layers = mlp([members + world, hidden, hidden, 1], "relu")

    def forward(self, q: Tensor, world: Tensor) -> Tensor:
        return self.layers(torch.cat([q, world], -1)).squeeze(-1)


class TeamQ(nn.Module):
    """Q_i [..., G, A] of the members, and Q_tot [...] of what they chose."""

    plain = True  # core.plain

    def __init__(
        self,
        team: Team,
        model: ModelConfig,
        mixer: nn.Module,
        *,
        shared: bool = True,
        dueling: bool = False,
        noisy: bool = False,
    ):
        super().__init__()
        choices = team.action.sizes[0]
        self.members = Members(team, lambda spec: QNetwork(spec, choices, model, dueling, noisy), shared)
        self.mixer = mixer

    def forward(self, obs: Tree) -> Tensor:
        return self.members(obs)

    def step(self, obs: Tree, state: State) -> tuple[Tensor, State]:
        return self.members.step(obs, state)

    def unroll(self, obs: Tree, state: State, first: Tensor, valid: Tensor) -> tuple[Tensor, State]:
        return self.members.unroll(obs, state, first, valid)

    def mix(self, q: Tensor, obs: Tree) -> Tensor:
        """Of the members' chosen Q_i [..., G]."""
        return self.mixer(q * obs[PRESENT].float(), world_of(obs))
