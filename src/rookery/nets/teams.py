"""Networks of teams (`core.team`): what members decide by, [..., G, …], and what becomes of it for the team as a whole.

    members     one network that all share and that is told who each of them is, or one for each
    sum         Q_tot = Σ_i Q_i                                                          (VDN, Sunehag 2018)
    monotone    Q_tot = w₂(s)ᵀ elu(W₁(s)ᵀ q + b₁(s)) + b₂(s),  W₁, w₂ ≥ 0: ∂Q_tot/∂Q_i ≥ 0   (QMIX, Rashid 2018)
    free        Q_tot = f(q, s), a perceptron: any function of them                      (WQMIX, Rashid 2020)
    central     Q_i(s, o_i, a): of each member, from all that is known                   (COMA, MADDPG)
    together    Q_i = Q_alone(o_i) + Q_collab(o_i, attention to the others)              (CollaQ, Zhang 2020)
    channel     a recurrence in both directions over the members of a group              (ATOC, Jiang 2018)

Whoever is not present counts 0, and keeps what it remembers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rookery.core.counting import rows_of
from rookery.core.errors import ConfigError
from rookery.core.spec import Leaf, describe
from rookery.core.team import AGENTS, PRESENT, WORLD, Team
from rookery.core.tree import Tree, leaves, tree_map
from rookery.nets.build import build_encoder
from rookery.nets.config import CoreConfig, ModelConfig
from rookery.nets.cores import State, build_core, state_spec
from rookery.nets.heads import QNetwork
from rookery.nets.modules import linear, mlp
from rookery.nets.normalise import NormaliseTeam


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


def present_only(obs: Tree) -> Tree:
    """The team's observation with zeros in the place of what members see that are not present."""
    there = obs[PRESENT].bool()
    shown = lambda x: torch.where(_beside(there, x), x, torch.zeros_like(x))  # noqa: E731
    return {**obs, AGENTS: tree_map(shown, obs[AGENTS])}


def _beside(mask: Tensor, x: Tensor) -> Tensor:
    """[..., G] → [..., G, 1, …], as many dimensions as x has."""
    return mask.reshape(*mask.shape, *[1] * (x.dim() - mask.dim()))


def box(size: int) -> Leaf:
    """The spec of so many numbers."""
    return Leaf("box", (size,), np.dtype(np.float32))


def bare(model: ModelConfig) -> ModelConfig:
    """The model of what sees normalised things already."""
    return model.model_copy(update={"normalise_obs": False})


class TeamNetwork(nn.Module):
    """A network that sees what a team does, normalised if the model says so; its parts are built with `bare(model)`."""

    plain = True  # core.plain

    def __init__(self, team: Team, model: ModelConfig | None):
        """Without a model: a part of such a network."""
        super().__init__()
        self.normaliser = NormaliseTeam(team) if model is not None and model.normalise_obs else None

    def view(self, obs: Tree) -> Tree:
        return obs if self.normaliser is None else self.normaliser(obs)


class Members(TeamNetwork):
    """A network for each member, or one that they share; `make` builds one from the spec of what it sees.

    With memory they are read by `step` and `unroll`, as a single `QNetwork` is; the states are [..., G, size]. With a
    model they normalise what they see themselves, and `make` must not.
    """

    plain = True  # core.plain

    def __init__(self, team: Team, make: Callable[[Tree], nn.Module], shared: bool, model: ModelConfig | None = None):
        super().__init__(team, model)
        self.count, self.shared = team.members, shared
        spec = {"seen": team.obs, "who": box(team.members)} if shared else team.obs
        self.networks = nn.ModuleList(make(spec) for _ in range(1 if shared else team.members))

    @property
    def _nets(self) -> list[Any]:
        return list(self.networks)

    def forward(self, obs: Tree) -> Tensor:
        obs = self.view(obs)
        if self.shared:
            return self.networks[0](self._seen(obs))
        lead = obs[PRESENT].dim() - 1
        return torch.stack([net(_at(obs[AGENTS], k, lead)) for k, net in enumerate(self.networks)], lead)

    @property
    def features(self) -> int:
        """Numbers of each, if the networks are encoders."""
        encoder: Any = self.networks[0]
        return int(encoder.out_features)

    def step(self, obs: Tree, state: State) -> tuple[Tensor, State]:
        """(results [..., G, …], next state); who is not present remembers what it did."""
        obs = self.view(obs)
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
        obs = self.view(obs)
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


class TeamQ(TeamNetwork):
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
        super().__init__(team, model)
        choices, own = team.action.sizes[0], bare(model)
        self.members = Members(team, lambda spec: QNetwork(spec, choices, own, dueling, noisy), shared)
        self.mixer = mixer

    def forward(self, obs: Tree) -> Tensor:
        return self.members(self.view(obs))

    def step(self, obs: Tree, state: State) -> tuple[Tensor, State]:
        return self.members.step(self.view(obs), state)

    def unroll(self, obs: Tree, state: State, first: Tensor, valid: Tensor) -> tuple[Tensor, State]:
        return self.members.unroll(self.view(obs), state, first, valid)

    def mix(self, q: Tensor, obs: Tree) -> Tensor:
        """Of the members' chosen Q_i [..., G]."""
        return self.mixer(q * obs[PRESENT].float(), world_of(self.view(obs)))


class Attention(nn.Module):
    """What each member hears of others [..., G, size]: Σ_k softmax_k(q_i · k_k / √size) v_k, zeros if there are none.

    The others are the other members that are present, as an encoder sees them; with `slices`, (start, stop) each, they
    are those parts of what the member itself sees.
    """

    plain = True  # core.plain

    def __init__(self, team: Team, model: ModelConfig, size: int, slices: tuple[tuple[int, int], ...]):
        super().__init__()
        self.slices, self.size = slices, size
        self.encoder = None if slices else Members(team, lambda spec: build_encoder(spec, model), True)
        widths = [stop - start for start, stop in slices] or [0 if self.encoder is None else self.encoder.features]
        own = team.obs.shape[0] if slices else widths[0]
        self.query = linear(own, size)
        self.tokens = nn.ModuleList(linear(width, 2 * size) for width in widths)  # keys and values

    def forward(self, obs: Tree) -> Tensor:
        there = obs[PRESENT].bool()
        if self.encoder is None:
            seen = obs[AGENTS].float()
            parts = [token(seen[..., start:stop]) for token, (start, stop) in zip(self.tokens, self.slices)]
            both, counts = torch.stack(parts, -2), there.unsqueeze(-1).expand(*there.shape, len(parts))
        else:
            seen = self.encoder(obs)
            both = self.tokens[0](seen).unsqueeze(-3).expand(*there.shape, there.shape[-1], -1)
            counts = there.unsqueeze(-2) & ~torch.eye(there.shape[-1], device=there.device).bool()
        key, value = both.chunk(2, -1)
        score = (self.query(seen).unsqueeze(-2) * key).sum(-1) / self.size**0.5
        weight = torch.where(counts, score, -1e9).softmax(-1) * counts
        return (weight.unsqueeze(-1) * value).sum(-2)


class Together(TeamNetwork):
    """`TeamQ` whose Q_i = Q_alone + Q_collab; `own_loss` holds Q_collab of somebody without others at 0."""

    plain = True  # core.plain

    def __init__(self, team: Team, model: ModelConfig, mixer: nn.Module, config: Any):
        super().__init__(team, model)
        slices, choices, own = tuple(map(tuple, config.others)), team.action.sizes[0], bare(model)
        width = team.obs.shape[0] if isinstance(team.obs, Leaf) and len(team.obs.shape) == 1 else 0
        if any(not 0 <= start < stop <= width for start, stop in slices):
            raise ConfigError(
                f"algo.others={[list(part) for part in slices]} must be [start, stop] of numbers that a member sees, "
                f"but it sees {describe(team.obs)}. Correct them, or set algo.others=[]."
            )
        both = replace(team, obs={"seen": team.obs, "heard": box(config.attention)})
        make = lambda spec: QNetwork(spec, choices, own, config.dueling, config.noisy)  # noqa: E731
        self.slices, self.size, self.cost = slices, config.attention, config.mara
        self.alone, self.collab = Members(team, make, config.shared), Members(both, make, config.shared)
        self.attention, self.mixer = Attention(team, own, config.attention, slices), mixer

    def forward(self, obs: Tree) -> Tensor:
        obs = self.view(obs)
        return self.alone(self._alone(obs)) + self.collab(self._with(obs, self.attention(obs)))

    def step(self, obs: Tree, state: Any) -> tuple[Tensor, Any]:
        obs = self.view(obs)
        alone, first = self.alone.step(self._alone(obs), state["alone"])
        collab, second = self.collab.step(self._with(obs, self.attention(obs)), state["collab"])
        return alone + collab, {"alone": first, "collab": second}

    def unroll(self, obs: Tree, state: Any, first: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        obs = self.view(obs)
        alone, after = self.alone.unroll(self._alone(obs), state["alone"], first, valid)
        collab, then = self.collab.unroll(self._with(obs, self.attention(obs)), state["collab"], first, valid)
        return alone + collab, {"alone": after, "collab": then}

    def mix(self, q: Tensor, obs: Tree) -> Tensor:
        """Of the members' chosen Q_i [..., G]."""
        return self.mixer(q * obs[PRESENT].float(), world_of(present_only(self.view(obs))))

    def own_loss(self, b: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """α mean Q_collab(o_alone, ·)² over the members that are present."""
        counts = b.obs[PRESENT].float()
        silent = self._with(self._alone(self.view(b.obs)), counts.new_zeros(*counts.shape, self.size))
        if "state" in b:
            start = tree_map(lambda x: x[0], b.state["collab"])
            q, counts = self.collab.unroll(silent, start, b.first, b.valid)[0], counts * b.valid.float().unsqueeze(-1)
        else:
            q = self.collab(silent)
        there = counts > 0.0
        mara = torch.where(there, q.square().mean(-1), 0.0).sum() / rows_of(counts, there)
        return self.cost * mara, {"mara": mara}

    def _alone(self, obs: Tree) -> Tree:
        """Without what concerns others."""
        if not self.slices:
            return obs
        seen = obs[AGENTS]
        place = torch.arange(seen.shape[-1], device=seen.device)
        others = torch.stack([(place >= start) & (place < stop) for start, stop in self.slices]).any(0)
        return {**obs, AGENTS: torch.where(others, torch.zeros_like(seen), seen)}

    def _with(self, obs: Tree, heard: Tensor) -> Tree:
        return {AGENTS: {"seen": obs[AGENTS], "heard": heard}, PRESENT: obs[PRESENT]}


class Central(TeamNetwork):
    """`out` numbers about each member [..., G, out]: from the world, what it sees, and what everybody does.

    The actions [..., G, G, k] are told to each of them by itself, so that its own can be hidden, or another one than
    was taken. It has no memory.
    """

    plain = True  # core.plain

    def __init__(self, team: Team, model: ModelConfig, width: int, out: int, shared: bool):
        super().__init__(team, model)
        spec = {"own": team.obs, "world": box(team.world_size), "actions": box(team.members * width)}
        feed_forward = bare(model).model_copy(update={"core": None})
        self.members = Members(replace(team, obs=spec), lambda spec: QNetwork(spec, out, feed_forward), shared)

    def forward(self, obs: Tree, actions: Tensor) -> Tensor:
        obs = present_only(self.view(obs))
        present = obs[PRESENT]
        world = world_of(obs).unsqueeze(-2).expand(*present.shape, -1)
        done = torch.where(present.bool().unsqueeze(-2).unsqueeze(-1), actions, 0.0).flatten(-2)
        return self.members({AGENTS: {"own": obs[AGENTS], "world": world, "actions": done}, PRESENT: present})


class Thoughts(NamedTuple):
    """What `Communicating` makes of an observation before anybody acts."""

    own: Tensor  # [..., G, H]
    initiates: Tensor  # [..., G]: logits of wanting to communicate
    shared: Tensor  # [..., G, G, S]: what the group of the first member makes of the second one's
    group: Tensor  # bool [..., G, G]: who is in the group of the first member


class Communicating(TeamNetwork):
    """Actions [..., G, out] of members that may share their thoughts in groups of `size`: whoever initiates one, and
    the next members after it that are present, as if they sat in a circle.
    """

    plain = True  # core.plain

    def __init__(self, team: Team, model: ModelConfig, out: int, *, size: int, channel: int, shared: bool, bound: bool):
        super().__init__(team, model)
        self.count, self.size, self.bound = team.members, size, bound
        own = bare(model)
        self.members = Members(team, lambda spec: build_encoder(spec, own), shared)
        width = self.members.features
        self.attention = mlp([width, width, 1], model.activation)
        cell = CoreConfig(kind="lstm", size=channel)
        self.there, self.back = build_core(width, cell), build_core(width, cell)
        self.head = linear(width + 2 * channel, out, model.init)

    def forward(self, obs: Tree) -> Tensor:
        thoughts = self.think(obs)
        return self.act(thoughts, thoughts.initiates > 0.0)

    def think(self, obs: Tree) -> Thoughts:
        own = self.members(self.view(obs))
        initiates = self.attention(own.detach()).squeeze(-1)
        seat = torch.arange(self.count, device=own.device)
        circle = (seat.unsqueeze(-1) + seat) % self.count  # [i, d]: who sits d places after i
        present = obs[PRESENT].bool()[..., circle]
        invited = present & (present.long().cumsum(-1) <= self.size) & present[..., :1]
        spoken = self._channel(own[..., circle, :], invited)
        place = (seat - seat.unsqueeze(-1)) % self.count  # [i, j]: places from i to j
        return Thoughts(
            own, initiates, spoken[..., seat.unsqueeze(-1), place, :], invited[..., seat.unsqueeze(-1), place]
        )

    def _channel(self, x: Tensor, invited: Tensor) -> Tensor:
        """[..., d, H] → [..., d, S]: each hears those before and those after it."""
        x, valid = x.movedim(-2, 0), invited.movedim(-1, 0)
        none = torch.zeros_like(valid)
        blank = x.new_zeros(*x.shape[1:-1], self.there.size)
        state = {"h": blank, "c": blank}
        there, _ = self.there.unroll(x, state, none, valid)
        back, _ = self.back.unroll(x.flip(0), state, none, valid.flip(0))
        return torch.cat([there, back.flip(0)], -1).movedim(0, -2)

    def act(self, thoughts: Thoughts, open_: Tensor) -> Tensor:
        """Where these members [..., G] initiate a group; who is in several hears their mean, who is in none zeros."""
        heard = thoughts.group & open_.unsqueeze(-1)
        weight = heard.float() / heard.sum(-2, keepdim=True).clamp(min=1)
        both = torch.cat([thoughts.own, (weight.unsqueeze(-1) * thoughts.shared).sum(-3)], -1)
        return torch.tanh(self.head(both)) if self.bound else self.head(both)
